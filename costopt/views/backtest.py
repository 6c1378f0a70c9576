"""A backtest as a table: one set of columns for every output and for the report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from costopt.backtesting.backtest import OPTIMUM, ORACLE_LABELS, RecordCoverage
from costopt.backtesting.ranking import PairedDifference, PolicySummary
from costopt.domain.estimate import Estimate
from costopt.formatting import (
    count_text,
    kwh_text,
    number_text,
    percent_text,
    pluralize,
    probability_text,
    seconds_text,
    usd_text,
)
from costopt.render.table import Column, Row, Table
from costopt.views.headline import saving_text

HINDSIGHT_UNDEFINED = (
    "No hindsight optimum: in some window no run on the recorded market is in time, or moving the "
    "job's data has no known price."
)
INTERVALS = (
    "95 %: the interval of the mean or the ratio, by paired bootstrap over windows. Windows of one "
    "record that overlap are alike, so the true one is wider."
)


ORACLES = (OPTIMUM, *ORACLE_LABELS)
ON_DEMAND_POLICIES = ("on_demand", "on-demand")
"""The baseline, and the shipped policy."""


def _ratio(value: float) -> str:
    return f"{value:.3f}"


def _interval(shown: Callable[[float], str]) -> Callable[[tuple[float, float]], str]:
    return lambda pair: f"[{shown(pair[0])}, {shown(pair[1])}]"


def _pair(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (low, high)


def _late(summary: PolicySummary) -> str | None:
    return None if summary.misses is None else count_text(summary.misses, summary.runs)


def _kilograms(grams: float) -> str:
    return f"{grams / 1000:.2f}"


BACKTEST_COLUMNS = (
    Column("group", "Group"),
    Column("strategy", "Policy", value="policy"),
    Column("mean_usd", "$ mean", usd_text, right=True),
    Column(
        "mean_interval_usd",
        "$ 95 %",
        _interval(usd_text),
        rank=1,
        value=lambda each: _pair(each.low_usd, each.high_usd),
    ),
    Column("p50_usd", "$ P50", usd_text, right=True, rank=6),
    Column("p95_usd", "$ P95", usd_text, right=True, rank=4),
    Column("kwh", "kWh", number_text, right=True, rank=2),
    Column("gco2e", "kgCO2e", _kilograms, right=True, rank=5),
    Column("hourly_carbon_share", "Hourly CO2e", percent_text, right=True, rank=9),
    Column("embodied_gco2e", "Embodied kg", _kilograms, right=True, rank=9),
    Column("sci_gco2e_per_unit", "SCI g/unit", "{:.3g}".format, right=True, rank=9),
    Column("finish_s", "Takes", lambda seconds: f"{seconds / 3600:.1f} h", right=True, rank=4),
    Column("late", "Late", right=True, for_people=True, value=_late),
    Column("misses", "Misses", detail=True),
    Column("interruptions", "Interruptions", number_text, right=True, rank=7),
    Column("switches", "Switches", number_text, right=True, rank=7),
    Column("lost_s", "Lost work", seconds_text, right=True, rank=8),
    Column("hindsight_ratio", "× hindsight", _ratio, right=True, rank=3),
    Column(
        "hindsight_interval",
        "× 95 %",
        _interval(_ratio),
        rank=8,
        value=lambda each: _pair(each.hindsight_low, each.hindsight_high),
    ),
    Column("runs", "Runs", detail=True),
)


def backtest_table(standings: Sequence[PolicySummary], title: str = "Backtest") -> Table:
    """Return one row per policy, in the order given; their group only where there are several."""
    grouped = len({standing.group for standing in standings}) > 1
    columns = BACKTEST_COLUMNS if grouped else BACKTEST_COLUMNS[1:]
    return Table("costopt.backtest/1", title, columns, standings)


REGRET_COLUMNS = (
    Column("group", "Group"),
    Column("strategy", "Policy", value="policy"),
    Column("mean_usd", "$ mean", usd_text, right=True, rank=1),
    Column("regret_usd", "$ lost", usd_text, right=True),
    Column("waited_usd", "Waited", usd_text, right=True),
    Column("on_demand_too_soon_usd", "Too soon", usd_text, right=True),
    Column("on_demand_too_long_usd", "Too long", usd_text, right=True),
    Column("wasted_spot_usd", "In vain", usd_text, right=True),
    Column("wrong_pool_usd", "Wrong pool", usd_text, right=True),
    Column("lost_work_usd", "Lost work", usd_text, right=True),
    Column("other_usd", "Other", usd_text, right=True),
    Column("regret_runs", "Windows", detail=True),
)
REGRET_NOTE = (
    "$ lost: dollars above the hindsight optimum, by what that would have done from where the run "
    "was. Waited: it runs. Too soon: on demand while it waits. Too long: on demand while it is on "
    "spot. In vain: spot while it waits, or is on demand. Wrong pool: another pool or size. Lost "
    "work: done again. Other: starts, saves, rounding."
)


def regret_table(standings: Sequence[PolicySummary], title: str = "Regret") -> Table:
    """Return one row per policy that lost dollars against the optimum: the means by cause."""
    grouped = len({standing.group for standing in standings}) > 1
    notes = [REGRET_NOTE] + [
        f"{each.policy}: {each.regret_runs} of {each.runs} windows; in the others it did not "
        "finish, or there is no hindsight optimum."
        for each in standings
        if each.policy != OPTIMUM and each.regret_runs < each.runs
    ]
    rows = [standing for standing in standings if standing.policy != OPTIMUM]
    columns = REGRET_COLUMNS if grouped else REGRET_COLUMNS[1:]
    return Table("costopt.backtest.regret/1", title, columns, rows, notes=tuple(notes))


def _verdict(difference: PairedDifference) -> str:
    if difference.is_equal:
        return "equal in every window"
    if not difference.is_clear:
        return "not decided by these windows"
    return difference.reference if difference.mean_usd > 0 else difference.policy


DIFFERENCE_COLUMNS = (
    Column("policy", "Policy"),
    Column("mean_usd", "$ more", lambda usd: f"{'+' if usd > 0 else ''}{usd_text(usd)}",
           right=True),
    Column("interval", "95 %", _interval(usd_text),
           value=lambda each: _pair(each.low_usd, each.high_usd)),
    Column("cheaper", "Cheaper in", right=True,
           value=lambda each: f"{each.cheaper} of {each.windows} windows"),
    Column("verdict", "Which is cheaper", value=_verdict),
)  # fmt: skip


def differences_table(differences: Sequence[PairedDifference]) -> Table:
    """Return a row per policy: what it costs more than the reference in the same windows."""
    reference = differences[0].reference if differences else ""
    title = f"Dollars against {reference}, window by window"
    return Table("", title, DIFFERENCE_COLUMNS, differences)


def standings_table(
    standings: Sequence[PolicySummary],
    *,
    job: str,
    coverages: Sequence[RecordCoverage],
    windows: int,
    spans_h: Sequence[float],
    past_s: float,
) -> Table:
    """Return the table with how much of the record it rests on, and what was known before.

    ``spans_h`` are the deadlines of the ``windows``, ``past_s`` is the time that policies may have
    learned from before each start.
    """
    times = "1 window" if windows == 1 else f"{windows} windows"
    spans = ", ".join(f"{span_h:g}" for span_h in spans_h)
    names = list(dict.fromkeys(coverage.market for coverage in coverages))
    market = names[0] if len(names) == 1 else f"{len(names)} markets"
    return replace(
        backtest_table(standings, f"{job} on {market}: {times} of {spans} h"),
        lead=backtest_headline(standings),
        notes=(*_notes(standings, coverages), *history_note(past_s)),
        details=_details(standings),
        facts={
            "job": job,
            "market": market,
            "windows": windows,
            "deadline_h": spans_h[0],
            "markets": names,
            "deadlines_h": list(spans_h),
            "history_h": "all" if math.isinf(past_s) else past_s / 3600,
            "coverage": [_coverage_fact(coverage) for coverage in coverages],
        },
    )


def cheapest_in_time(standings: Sequence[PolicySummary]) -> PolicySummary | None:
    """Return the cheapest that kept every deadline without knowing the future."""
    kept = [
        each
        for each in standings
        if each.misses == 0 and each.mean_usd is not None and each.policy not in ORACLES
    ]
    return min(kept, key=lambda each: each.mean_usd or 0.0, default=None)


def backtest_headline(standings: Sequence[PolicySummary]) -> str:
    """Return which policy kept every deadline for the fewest dollars; of several groups, in each
    a line."""
    groups = list(dict.fromkeys(each.group for each in standings))
    if len(groups) > 1:
        return "\n".join(
            f"{group}: {backtest_headline([each for each in standings if each.group == group])}"
            for group in groups
        )
    best = cheapest_in_time(standings)
    if best is None or best.mean_usd is None:
        blind = any(each.policy not in ORACLES for each in standings)
        return "No policy kept every deadline." if blind else "There are no runs to compare."
    late = probability_text(Estimate.of_share(0, best.runs, "windows"))
    on_demand = [
        each.mean_usd for each in standings if each.policy in ON_DEMAND_POLICIES and each.mean_usd
    ]
    energy = "" if best.kwh is None else f"; {kwh_text(best.kwh)}"
    return (
        f"Policy {best.policy} kept every deadline of {pluralize(best.runs, 'window')} "
        f"(P(late) {late}). {usd_text(best.mean_usd)} on average (P95 {usd_text(best.p95_usd)})"
        f"{saving_text(best.mean_usd, min(on_demand, default=None))}{energy}."
    )


def coverage_note(coverage: RecordCoverage) -> str:
    """What part of a record was usable, in a sentence."""
    gaps = "no gap" if not coverage.gap_s else f"{coverage.gap_s / 3600:,.1f} h with gaps"
    text = (
        f"{coverage.market}: {coverage.recorded_s / 3600:,.0f} h recorded, {gaps}; a window of "
        f"{coverage.span_s / 3600:g} h can begin in {percent_text(coverage.usable_share)} of it"
    )
    if coverage.unobserved:
        pools = "1 pool was" if len(coverage.unobserved) == 1 else (
            f"{len(coverage.unobserved)} pools were"
        )  # fmt: skip
        text += f"; {pools} never observed"
    return f"{text}."


def history_note(past_s: float) -> tuple[str, ...]:
    """What was known before each start, in a sentence; none where nothing was."""
    if past_s <= 0:
        return ()
    span = "everything recorded" if math.isinf(past_s) else f"the {seconds_text(past_s)} recorded"
    return (f"Policies that learn have watched {span} before each start.",)


def undefined_note(standings: Sequence[PolicySummary]) -> tuple[str, ...]:
    """Which policies have no figures, in a sentence; none where all have."""
    names = dict.fromkeys(s.policy for s in standings if s.mean_usd is None)
    if not names:
        return ()
    return (
        f"{', '.join(names)}: unknown, because in some window no on-demand capacity that the job "
        "may use is offered at a known price.",
    )


def carbon_note(standings: Sequence[PolicySummary]) -> tuple[str, ...]:
    """By what intensities CO2e counts, in a sentence; none where no policy used energy."""
    shares = [s.hourly_carbon_share for s in standings if s.hourly_carbon_share is not None]
    if not shares:
        return ()
    low, high = min(shares), max(shares)
    if low > 0.995:
        return ("CO2e: by the intensity of each hour, as recorded.",)
    if high <= 0:
        return ("CO2e: by annual means of each region.",)
    span = (
        percent_text(low) if high - low < 0.005 else f"{percent_text(low)} to {percent_text(high)}"
    )
    return (f"CO2e: {span} of the energy by the recorded hour, the rest by annual means.",)


def _details(standings: Sequence[PolicySummary]) -> tuple[str, ...]:
    """How the figures came about."""
    known = any(standing.high_usd is not None for standing in standings)
    return (*((INTERVALS,) if known else ()), *carbon_note(standings))


def _notes(
    standings: Sequence[PolicySummary], coverages: Sequence[RecordCoverage]
) -> tuple[str, ...]:
    notes = [coverage_note(c) for c in coverages if c.usable_share < 1 or c.unobserved]
    if not any(standing.hindsight_ratio for standing in standings):
        notes.append(HINDSIGHT_UNDEFINED)
    optima = [s.hindsight_ratio or 1.0 for s in standings if s.policy == OPTIMUM]
    if max(optima, default=1.0) >= 1.0005:
        notes.append(
            "× hindsight: over a lower bound, as progress is rounded where gangs' speeds differ; "
            f"the optimum is {_ratio(max(optima))} times the bound at the most."
        )
    return (*notes, *undefined_note(standings))


def _coverage_fact(coverage: RecordCoverage) -> Row:
    return {
        "market": coverage.market,
        "deadline_h": coverage.span_s / 3600,
        "recorded_h": coverage.recorded_s / 3600,
        "gap_h": coverage.gap_s / 3600,
        "usable_share": coverage.usable_share,
        "unobserved": [str(pool) for pool in coverage.unobserved],
    }
