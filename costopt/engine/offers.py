"""The usable part of the market at one tick, and why the rest is not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from costopt.domain.errors import ProviderError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.events import PriceChanged, SignalStale
from costopt.domain.fleet import Node
from costopt.domain.market import Offer, Pool
from costopt.domain.plan import Rejection
from costopt.domain.policy import Policy
from costopt.engine.journal import Journal
from costopt.engine.settings import Settings
from costopt.engine.world import World
from costopt.market.screen import screen_offers


class Offers:
    """Reads the providers' offers, learns hazards from them and screens them."""

    def __init__(self, world: World, journal: Journal, settings: Settings) -> None:
        self._world = world
        self._journal = journal
        self._settings = settings
        self._silent: set[str] = set()
        self.told: tuple[Offer, ...] = ()

    def observe(
        self, policy: Policy, nodes: Sequence[Node], now: datetime
    ) -> tuple[tuple[Offer, ...], tuple[Rejection, ...]]:
        """Usable offers and rejections.

        A pool where nodes run stays among the offers, without room for more, whatever becomes of
        its price or cooldown: what runs is kept.
        """
        told = self._ask(now)
        self._world.hazards.observe(told, now, {node.pool for node in nodes})
        self._note_prices(told, nodes, now)
        known = [self._with_hazard(offer) for offer in told]
        self.told = tuple(known)
        screened, rejections = screen_offers(known, policy, now)
        usable, cooling = self._without_cooling(screened, now)
        kept = self._kept(usable, nodes, policy)
        return (*usable, *kept), (*rejections, *cooling)

    def _ask(self, now: datetime) -> list[Offer]:
        told: list[Offer] = []
        for provider in self._world.providers:
            label = "+".join(sorted(provider.names))
            try:
                told += provider.offers(now)
                self._silent.discard(label)
            except ProviderError as error:
                if label not in self._silent:
                    self._silent.add(label)
                    for job in self._journal.records:
                        self._journal.write(
                            SignalStale(at=now, job=job, source=label, message=error.message)
                        )
        return told

    def _with_hazard(self, offer: Offer) -> Offer:
        if offer.hazard_per_hour is not None:
            return offer
        return replace(offer, hazard_per_hour=self._world.hazards.hazard_per_hour(offer.pool))

    def _note_prices(self, offers: Iterable[Offer], nodes: Sequence[Node], now: datetime) -> None:
        running = {(str(n.pool), n.job) for n in nodes}
        if not running:
            return
        for offer in offers:
            if offer.price_usd_per_hour is None:
                continue
            micros = round(offer.price_usd_per_hour.value * 1_000_000)
            for pool, job in running:
                if pool == str(offer.pool) and self._journal.records[job].prices[pool] != micros:
                    self._journal.write(
                        PriceChanged(at=now, job=job, pool=pool, micros_per_hour=micros)
                    )

    def _without_cooling(
        self, offers: Iterable[Offer], now: datetime
    ) -> tuple[list[Offer], list[Rejection]]:
        cooling = self._cooling(now)
        usable = [offer for offer in offers if offer.pool not in cooling]
        rejections = [
            Rejection(
                pool,
                "cooldown",
                f"refused or took a node; left alone until {until:%Y-%m-%d %H:%M:%S} UTC",
            )
            for pool, until in cooling.items()
        ]
        return usable, rejections

    def _cooling(self, now: datetime) -> dict[Pool, datetime]:
        cooldown = timedelta(seconds=self._settings.cooldown_s)
        cooling: dict[Pool, datetime] = {}
        for record in self._journal.records.values():
            for pool, since in record.cooldown_from.items():
                if since + cooldown > now:
                    cooling[pool] = since + cooldown
        return cooling

    def _kept(
        self, usable: Iterable[Offer], nodes: Sequence[Node], policy: Policy
    ) -> tuple[Offer, ...]:
        there = {offer.pool for offer in usable}
        missing = {n.pool: n for n in nodes if n.pool not in there}
        return tuple(
            Offer(
                pool=pool,
                price_usd_per_hour=Estimate.exact(
                    node.usd_per_hour, Basis.MEASURED, "price at launch"
                ),
                hazard_per_hour=self._world.hazards.hazard_per_hour(pool),
                nodes_available=0,
            )
            for pool, node in missing.items()
            if policy.limits.refusal(pool) is None
        )
