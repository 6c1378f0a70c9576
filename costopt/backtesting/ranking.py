"""Policies' results over the same windows, with means and intervals of a paired bootstrap.

Confidence intervals come from resampling windows, all policies of a window together: the bootstrap
of Efron (1979) with percentile intervals. Resampling whole windows pairs a policy
with the optimum of the same window, so what is easy or hard about a window cancels in their ratio.
Windows of one record may overlap and are then alike, so the true interval is wider than this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from costopt.backtesting.regret import CATEGORIES
from costopt.backtesting.trial import HINDSIGHT, Score, Trial, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySummary:
    """One policy over ``runs`` windows of one ``group``: means unless the name says otherwise.

    None is unknown; ``mean_usd``, ``p50_usd``, ``p95_usd`` and ``misses`` are unknown where the
    policy is not defined on every window of the group. ``low_usd`` to ``high_usd`` holds the mean
    and ``hindsight_low`` to ``hindsight_high`` the ratio with 95 %, by bootstrap over the windows.
    ``hindsight_ratio`` is the mean against the mean lower bound of the optimum in the same windows,
    None where a run was not finished. That of the optimum itself is 1 where it is known exactly.
    ``regret_usd`` and what it was lost to are means over the ``regret_runs`` in which it is known.
    """

    group: str
    policy: str
    runs: int
    mean_usd: float | None
    low_usd: float | None
    high_usd: float | None
    p50_usd: float | None
    p95_usd: float | None
    kwh: float | None
    gco2e: float | None
    hourly_carbon_share: float | None
    embodied_gco2e: float | None
    sci_gco2e_per_unit: float | None
    finish_s: float | None
    misses: int | None
    interruptions: float | None
    switches: float | None
    lost_s: float | None
    hindsight_ratio: float | None
    hindsight_low: float | None
    hindsight_high: float | None
    regret_runs: int = 0
    regret_usd: float | None = None
    waited_usd: float | None = None
    on_demand_too_soon_usd: float | None = None
    on_demand_too_long_usd: float | None = None
    wasted_spot_usd: float | None = None
    wrong_pool_usd: float | None = None
    lost_work_usd: float | None = None
    other_usd: float | None = None


def summarize_policies(
    scores: Sequence[tuple[Trial, Score]],
    labels: Sequence[str],
    group_of: Callable[[Window], str],
    seed: int,
) -> list[PolicySummary]:
    """One per group and policy, in the order of ``labels``; deterministic by ``seed``.

    What is not defined on every window of its group is unknown; an optimum is left out then.
    """
    optima = {trial.label for trial, _ in scores if trial.policy.strategy.name == HINDSIGHT}
    by_group: dict[str, dict[str, dict[Window, Score]]] = {}
    best: dict[Window, float] = {}
    for trial, score in sorted(scores, key=lambda pair: _order(pair[0].window)):
        group = by_group.setdefault(group_of(trial.window), {})
        group.setdefault(trial.label, {})[trial.window] = score
        if trial.policy.strategy.name == HINDSIGHT and score.usd is not None:
            best[trial.window] = score.usd if score.low_usd is None else score.low_usd
    return [
        standing
        for group, policies in by_group.items()
        for label in labels
        if label in policies
        if (standing := _standing(group, label, policies[label], best, seed)).mean_usd is not None
        or label not in optima
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """Dollars of a policy less those of a reference, over the ``windows`` where both are known.

    ``low_usd`` to ``high_usd`` holds the mean with 95 %, by bootstrap; None for fewer than two
    windows. In ``cheaper`` of them the policy cost less.
    """

    policy: str
    reference: str
    windows: int
    mean_usd: float
    low_usd: float | None
    high_usd: float | None
    cheaper: int

    @property
    def is_equal(self) -> bool:
        """Return whether both cost the same in every window."""
        return self.low_usd == self.high_usd == 0

    @property
    def is_clear(self) -> bool:
        """Return whether the interval leaves no doubt which of the two is cheaper."""
        return self.low_usd is not None and self.high_usd is not None and (
            self.low_usd > 0 or self.high_usd < 0
        )  # fmt: skip


def window_costs(scores: Sequence[tuple[Trial, Score]]) -> dict[str, dict[Window, float]]:
    """Return the dollars of each window by policy, where they are known, in a stable order."""
    costs: dict[str, dict[Window, float]] = {}
    for trial, score in sorted(scores, key=lambda pair: _order(pair[0].window)):
        if score.usd is not None:
            costs.setdefault(trial.label, {})[trial.window] = score.usd
    return costs


def paired_differences(
    costs: Mapping[str, Mapping[Window, float]], reference: str
) -> list[PairedDifference]:
    """Return how each other policy differs from the reference in the same windows."""
    found = []
    for policy, by_window in costs.items():
        both = [window for window in by_window if window in costs.get(reference, {})]
        less = [by_window[window] - costs[reference][window] for window in both]
        if policy == reference or not less:
            continue
        low, high = mean_interval(less, seed=0) or (None, None)
        found.append(
            PairedDifference(
                policy=policy,
                reference=reference,
                windows=len(less),
                mean_usd=fmean(less),
                low_usd=low,
                high_usd=high,
                cheaper=sum(each < 0 for each in less),
            )
        )
    return found


def _standing(
    group: str, label: str, scores: dict[Window, Score], best: dict[Window, float], seed: int
) -> PolicySummary:
    everything = list(scores.values())
    dollars = [score.usd for score in everything if score.usd is not None]
    defined = len(dollars) == len(everything)
    optimal = [best[window] for window in scores if window in best]
    paired = defined and len(optimal) == len(dollars) and all(s.finished for s in everything)
    of_mean = mean_interval(dollars, seed) if defined else None
    of_ratio = ratio_interval(dollars, optimal, seed) if paired else None
    ordered = sorted(dollars)
    known = [score for score in everything if score.regret_usd is not None]
    return PolicySummary(
        group=group,
        policy=label,
        runs=len(everything),
        mean_usd=fmean(dollars) if defined else None,
        low_usd=None if of_mean is None else of_mean[0],
        high_usd=None if of_mean is None else of_mean[1],
        p50_usd=_quantile(ordered, 0.5) if defined else None,
        p95_usd=_quantile(ordered, 0.95) if defined else None,
        kwh=_mean(score.kwh for score in everything),
        gco2e=_mean(score.gco2e for score in everything),
        hourly_carbon_share=_mean(score.hourly_carbon_share for score in everything),
        embodied_gco2e=_mean(score.embodied_gco2e for score in everything),
        sci_gco2e_per_unit=_mean(score.sci_gco2e_per_unit for score in everything),
        finish_s=_mean(score.finish_s for score in everything if score.finish_s is not None),
        misses=sum(score.on_time is not True for score in everything) if defined else None,
        interruptions=_mean(score.interruptions for score in everything),
        switches=_mean(score.switches for score in everything),
        lost_s=_mean(score.lost_s for score in everything),
        hindsight_ratio=fmean(dollars) / fmean(optimal) if paired else None,
        hindsight_low=None if of_ratio is None else of_ratio[0],
        hindsight_high=None if of_ratio is None else of_ratio[1],
        regret_runs=len(known),
        **{
            name: _mean(getattr(score, name) for score in known)
            for name in ("regret_usd", *CATEGORIES)
        },
    )


def _order(window: Window) -> tuple[str, str, str, float]:
    job = window.job
    return window.market, job.start_at.isoformat(), job.until_at.isoformat(), job.startup_s


def _mean(values: Iterable[float | None]) -> float | None:
    """None where any is unknown, or there is none."""
    every = list(values)
    known = [value for value in every if value is not None]
    return fmean(known) if known and len(known) == len(every) else None


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Linear between the ordered values."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


RESAMPLES = 2000
CONFIDENCE_LEVEL = 0.95
MAX_PICKS = 1_000_000
"""Of windows at a time: 8 MB."""


def mean_interval(values: Sequence[float], seed: int) -> tuple[float, float] | None:
    """The interval of the mean; None for fewer than two values."""
    return ratio_interval(values, [1.0] * len(values), seed)


def ratio_interval(
    values: Sequence[float], references: Sequence[float], seed: int
) -> tuple[float, float] | None:
    """The interval of mean(values) / mean(references), paired; None for fewer than two pairs."""
    if len(values) < 2:
        return None
    above, below = np.asarray(values), np.asarray(references)
    random, count = np.random.default_rng(seed), len(above)
    at_once = max(1, MAX_PICKS // count)
    ratios = np.empty(RESAMPLES)
    for begin in range(0, RESAMPLES, at_once):
        picks = random.integers(count, size=(min(at_once, RESAMPLES - begin), count))
        part = above[picks].mean(axis=1) / below[picks].mean(axis=1)
        ratios[begin : begin + len(part)] = part
    low, high = np.quantile(ratios, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    return float(low), float(high)
