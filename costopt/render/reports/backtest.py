"""A backtest's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from costopt.backtesting.grid import BacktestGrid
from costopt.backtesting.ranking import (
    PairedDifference,
    PolicySummary,
    paired_differences,
    window_costs,
)
from costopt.backtesting.trial import HINDSIGHT, BacktestConfig, Score, Trial
from costopt.domain.events import DecisionMade
from costopt.ledger.run_view import RunView
from costopt.render.html import render_page
from costopt.render.reports.backtest_charts import (
    BacktestCurve,
    CostBar,
    cost_bars,
    curve_of_moments,
    curve_of_run,
    drawable,
    progress_curves,
    spend_curves,
)
from costopt.render.reports.pool_hours import pool_bars
from costopt.render.table import Table
from costopt.views.backtest import (
    backtest_headline,
    backtest_table,
    carbon_note,
    cheapest_in_time,
    coverage_note,
    differences_table,
    history_note,
    undefined_note,
)
from costopt.views.decision import decision_table

_HOW = (
    (
        "Runs",
        "The engine that launches nodes, replayed over recorded or generated markets: every "
        "strategy saw the same markets and knew nothing of their future, but for the optimum and "
        "the oracle.",
    ),
    ("Dollars", "Price × time of every node. Modelled: no node was rented."),
    (
        "Energy, CO2e",
        "Modelled from the catalogue's power figures and each region's intensity; unknown where "
        "a node's power is.",
    ),
    (
        "× hindsight",
        "Dollars against the cheapest schedule that knew the whole market beforehand; 1.00 cannot "
        "be beaten. In brackets, the interval that holds the ratio with 95 %, by paired bootstrap "
        "over the windows; windows that overlap are alike, so the true one is wider.",
    ),
    (
        "Interruptions, moves",
        "Nodes that the provider took, and gangs formed in other pools, per run.",
    ),
    ("Lost work", "Work that was done, not saved, and done again."),
)


def backtest_page(
    standings: Sequence[PolicySummary],
    curves: Mapping[str, BacktestCurve],
    *,
    coverage: Sequence[str] = (),
    decisions: Sequence[Table] = (),
    scores: Sequence[tuple[Trial, Score]] = (),
    now: datetime | None = None,
    title: str = "Backtest",
) -> str:
    """Return the comparison as one self-contained HTML document.

    ``curves`` holds the curves of one run per strategy, and may be empty; ``coverage`` says what
    part of each record the windows lie in, ``decisions`` why a strategy did what it did, ``scores``
    are those of single windows, which the distribution and the paired differences need.
    """
    found = window_costs(scores)
    costs = {each.policy: found[each.policy] for each in standings if each.policy in found}
    rows = CostBar.of(standings, {label: each.values() for label, each in costs.items()})
    best = cheapest_in_time(standings)
    differences = paired_differences(costs, best.policy) if best is not None else []
    drawn = drawable(curves)
    return render_page(
        "backtest.html.j2",
        title=title,
        made_at=now or datetime.now(UTC),
        lead=f"{backtest_headline(standings)}{_undecided(differences)}",
        differences=differences_table(differences) if differences else None,
        bars=cost_bars(rows),
        curves=spend_curves(drawn) if drawn else None,
        progress=progress_curves(drawn) if drawn else None,
        modes=pool_bars({name: curve.stays for name, curve in drawn.items()}) if drawn else None,
        table=backtest_table(standings),
        decisions=decisions,
        how=(*_HOW, *(("Coverage", text) for text in coverage)),
    )


def _undecided(differences: Sequence[PairedDifference]) -> str:
    """How sure the first place is."""
    unclear = [each.policy for each in differences if not (each.is_clear or each.is_equal)]
    if not unclear:
        return ""
    return f" These windows do not decide whether {', '.join(unclear)} cost more."


def grid_page(
    standings: Sequence[PolicySummary],
    grid: BacktestGrid,
    bench: BacktestConfig,
    scores: Sequence[tuple[Trial, Score]] = (),
) -> str:
    """Return the page of a backtest, with curves and decisions of its first window."""
    curves, decisions = first_window(grid, bench)
    notes = [*map(coverage_note, grid.coverages), *undefined_note(standings)]
    notes += (*carbon_note(standings), *history_note(bench.history_s))
    return backtest_page(standings, curves, coverage=notes, decisions=decisions, scores=scores)


def first_window(
    grid: BacktestGrid, bench: BacktestConfig
) -> tuple[dict[str, BacktestCurve], list[Table]]:
    """Replay the first window; return curves by policy, and tables of explained decisions."""
    curves: dict[str, BacktestCurve] = {}
    decisions: list[Table] = []
    for policy in grid.policies:
        trial = Trial(grid.windows[0], policy)
        if policy.strategy.name == HINDSIGHT:
            curves |= _optimum(bench, trial)
            continue
        run = _run(bench, trial)
        curves[trial.label] = curve_of_run(run)
        made = [event for event in run.events if isinstance(event, DecisionMade)]
        if any(event.alternatives for event in made):
            title = f"Decisions of {trial.label} in the first window"
            decisions.append(decision_table(made, run.begun_at, title))
    return curves, decisions


def _run(bench: BacktestConfig, trial: Trial) -> RunView:
    done = bench.rehearse(trial, explain=True)
    return RunView.of((recorded.event for recorded in done.events), done.summary.now)


def _optimum(bench: BacktestConfig, trial: Trial) -> dict[str, BacktestCurve]:
    """Return the hindsight optimum's curve by its label; empty if it is not defined."""
    best = bench.optimum(trial)
    if best is None:
        return {}
    return {trial.label: curve_of_moments(best.moments, trial.window.job.work.amount)}
