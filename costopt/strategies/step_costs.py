"""What a node-hour costs in each step to the deadline, where prices or carbon are forecast."""

from __future__ import annotations

import math

import numpy as np

from costopt.domain.series import Series
from costopt.strategies.deadline_terms import Tariff
from costopt.strategies.option import GangOption
from costopt.strategies.situation import ProgramState


def step_objective_usd(situation: ProgramState, option: GangOption) -> Tariff:
    """The policy's objective by steps to go; empty where no series that counts is known.

    Step n lasts from n to n − 1 steps before the end of the time that is left; of the present one
    only what is still ahead counts. Figures without a series stay what they are now.
    """
    from costopt.optimize.tariff import time_weighted_means

    view, objective, pool = situation.view, situation.view.policy.objective, option.pool
    power = view.powers.get(pool)
    prices = _finite(view.price_forecasts.get(pool)) if objective.usd else None
    carbon = _finite(view.carbon_forecasts.get(f"{pool.provider}/{pool.region}"))
    if power is None or not objective.usd_per_tonne_co2e:
        carbon = None
    if prices is None and carbon is None:
        return ()
    spans = situation.spans()
    kwh = 0.0 if power is None else power.kwh(0.0, 3600.0)
    usd = (
        option.usd_per_hour / option.nodes if prices is None else time_weighted_means(prices, spans)
    )
    grams = (power.gco2e(kwh) or 0.0) if power is not None else 0.0
    score = objective.usd * np.asarray(usd) + objective.usd_per_kwh * kwh
    co2e = grams if carbon is None else kwh * time_weighted_means(carbon, spans)
    by_step = np.broadcast_to(score + objective.usd_per_tonne_co2e * co2e / 1e6, len(spans))
    return (float(by_step[0]), *by_step.tolist())


def _finite(series: Series | None) -> Series | None:
    return series if series is not None and all(map(math.isfinite, series.values)) else None
