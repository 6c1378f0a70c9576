"""What a backtest from the command line is run with: the catalogue's models, in any process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from costopt.catalog import Catalog, load_catalog
from costopt.controller.forecasts import RecordedForecasts, catalog_hazard_priors
from costopt.domain.account import Account
from costopt.domain.history import MarketHistory
from costopt.domain.ports import Forecasts, HazardModel, PowerModel
from costopt.energy import NodePowerModel
from costopt.energy.carbon_file import read_carbon
from costopt.energy.carbon_record import RecordedCarbon
from costopt.market.hazard import LearnedHazard
from costopt.replay.edition import code_digest
from costopt.replay.trial import BacktestConfig, TrialKeys


@dataclass(frozen=True, slots=True)
class CatalogModels:
    """Makes fresh models for a trial; unlike closures, it can be sent to another process."""

    catalog: Catalog
    price_forecasts: bool
    carbon: RecordedCarbon | None

    def powers(self) -> PowerModel:
        """Power by the catalogue's figures."""
        return NodePowerModel(self.catalog)

    def hazards(self) -> HazardModel:
        """Priors of the catalogue, to be learned over."""
        return LearnedHazard(catalog_hazard_priors(self.catalog))

    def forecasts(self, market: MarketHistory) -> Forecasts:
        """Of what was asked for, from the record so far."""
        return RecordedForecasts(market if self.price_forecasts else None, self.carbon)


def backtest_config(
    markets: Mapping[str, MarketHistory],
    *,
    notice_s: float,
    cooldown_s: float,
    price_forecasts: bool,
    carbon: Path | None,
    account: Account,
    past_s: float,
) -> BacktestConfig:
    """The bench with the catalogue's machines. Raises SignalError for a bad carbon file."""
    catalog = load_catalog()
    recorded = None if carbon is None else RecordedCarbon(read_carbon(carbon), catalog.region)
    models = CatalogModels(catalog, price_forecasts, recorded)
    return BacktestConfig(
        markets=markets,
        machines=catalog,
        powers=models.powers,
        hazards=models.hazards,
        notice_s=notice_s,
        cooldown_s=cooldown_s,
        transfers=catalog.transfer,
        account=account,
        history_s=past_s,
        forecasts=models.forecasts if price_forecasts or recorded is not None else None,
        carbon=recorded,
    )


def trial_keys(bench: BacktestConfig, *, price_forecasts: bool, carbon: Path | None) -> TrialKeys:
    """Keys that change with the code, its data and what the forecasts are made from."""
    digest = "" if carbon is None else hashlib.sha256(carbon.read_bytes()).hexdigest()
    return TrialKeys(bench, f"{code_digest()} {price_forecasts} {digest}")
