"""A site of virtual nodes on a recorded market and a virtual clock: what a backtest runs on."""

from __future__ import annotations

from datetime import datetime

from costopt.controller.site import Site, connect_virtual_provider
from costopt.domain.history import MarketHistory
from costopt.domain.ports import CarbonRecord, Forecasts, HazardModel, InstanceCatalog, PowerModel
from costopt.domain.transfers import TransferPrices
from costopt.engine.loop import VirtualClock

OWNER = "costopt"


def virtual_site(
    market: MarketHistory,
    start_at: datetime,
    *,
    machines: InstanceCatalog,
    powers: PowerModel,
    hazards: HazardModel,
    notice_s: float | None,
    transfers: TransferPrices | None = None,
    forecasts: Forecasts | None = None,
    carbon: CarbonRecord | None = None,
) -> Site:
    """The record from ``start_at`` on. Time passes only while its clock sleeps.

    ``notice_s`` None: the notice of an interruption is what the pool's provider gives.
    """
    clock = VirtualClock(start_at)
    provider = connect_virtual_provider(
        clock,
        {"market": market, "machines": machines, "notice_s": notice_s, "transfers": transfers},
    )
    return Site(
        owner=OWNER,
        clock=clock,
        providers=(provider,),
        runtime=provider.runtime,
        machines=machines,
        powers=powers,
        hazards=hazards,
        transfers=transfers,
        forecasts=forecasts,
        carbon=carbon,
    )
