"""A lower bound of what any plan of one job costs as simulated, fallback included.

The model of plans knows expected speeds and interruptions, and nothing of the fallback, so that its
bound is below what any plan costs: a mean of run times is longer than the time at the mean
speed, and a run that would be late pays for the fallback. Let the whole job on row r cost U_r(ω)
and take T_r(ω) hours in the simulated run ω. A plan does the shares w_r of the work on the rows,
each unit of it on r or, where the run would be late, on a fallback f, within L hours. For all
prices of time λ(ω) ≥ 0 it therefore costs, on average over ω, at least

    min_r E[min(U_r + λ·T_r, min_f (U_f + λ·T_f))] − E[λ]·L

(Lagrangian relaxation of the limit of time; Shapiro et al. 2009, Lectures on Stochastic
Programming, 2.3). It is concave in λ; Polyak's supergradient steps raise it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costopt.domain.policy import Objective
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.pruning import usable_h
from costopt.optimize.random_draws import draw_randoms
from costopt.optimize.rates import Array
from costopt.optimize.simulation import CANDIDATE_SAMPLES, simulate_rows

STEPS = 60
CHUNK = 4000
"""Rows that are simulated at a time, to save memory."""


def simulated_bound(part: PlannedJob, objective: Objective, reached: float) -> float:
    """Return a lower bound of what any plan of a job costs by the objective, as simulated.

    ``reached`` is what one plan costs. Prices must be constant, and the job of one stage.
    """
    table, demand = part.table, part.demand
    rows = np.flatnonzero(usable_h(table, demand) > 0)
    draws = draw_randoms(CANDIDATE_SAMPLES)
    scores, hours = [], []
    for begin in range(0, len(rows), CHUNK):
        runs = simulate_rows(table, rows[begin : begin + CHUNK], demand, draws)
        score = objective.usd * runs.usd
        if objective.usd_per_kwh:
            score = score + objective.usd_per_kwh * runs.kwh
        if objective.usd_per_tonne_co2e:
            score = score + objective.usd_per_tonne_co2e * runs.gco2e / 1e6
        scores.append(score)
        hours.append(runs.finish_h)
    score, run_h = np.concatenate(scores), np.concatenate(hours)
    firm = table.firm[rows] & table.now[rows]
    return _raised(score, run_h, firm, demand.hours_left, reached)


def _raised(
    score: Array, run_h: Array, firm: NDArray[np.bool_], left_h: float, reached: float
) -> float:
    """The highest bound that the steps find; figures have shape (rows, samples)."""
    samples = score.shape[1]
    price, best = np.zeros(samples), -np.inf
    for _ in range(STEPS):
        cost = score + price * run_h
        safe = np.where(firm[:, None], cost, np.inf)
        fallback = safe.argmin(axis=0)
        least = np.minimum(cost, safe[fallback, np.arange(samples)])
        row = int(least.mean(axis=1).argmin())
        bound = float(least[row].mean() - price.mean() * left_h)
        best = max(best, bound)
        gap = reached - bound
        if gap <= 0:
            break
        falls = cost[row] > least[row]
        taken_h = np.where(falls, run_h[fallback, np.arange(samples)], run_h[row])
        slope = (taken_h - left_h) / samples
        price = np.maximum(0.0, price + gap * slope / max(float(slope @ slope), 1e-12))
    return min(best, reached)
