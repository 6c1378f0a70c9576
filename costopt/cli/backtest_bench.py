"""What a backtest from the command line is run with: the catalogue's models, in any process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from costopt.catalog import load_catalog
from costopt.controller.forecasts import CatalogModels
from costopt.domain.account import Account
from costopt.domain.history import MarketHistory
from costopt.energy.carbon_file import read_carbon
from costopt.energy.carbon_record import RecordedCarbon
from costopt.replay.edition import code_digest
from costopt.replay.trial import BacktestConfig, TrialKeys


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
    models = CatalogModels(catalog, recorded, price_forecasts)
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
        forecasts=models.forecasts,
        carbon=recorded,
    )


def trial_keys(bench: BacktestConfig, *, price_forecasts: bool, carbon: Path | None) -> TrialKeys:
    """Keys that change with the code, its data and what the forecasts are made from."""
    digest = "" if carbon is None else hashlib.sha256(carbon.read_bytes()).hexdigest()
    return TrialKeys(bench, f"{code_digest()} {price_forecasts} {digest}")
