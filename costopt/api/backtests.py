"""Backtests of policies and strategies on recorded markets."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import PicklingError, dumps
from typing import TYPE_CHECKING, Literal, Protocol

from costopt.api.inputs import (
    JobSource,
    Market,
    Span,
    StrPath,
    as_tuple,
    bad_argument,
    check_account,
    check_choice,
    check_count,
    check_job,
    check_markets,
    check_number,
    check_policies,
    check_policy,
    check_spans_s,
)
from costopt.api.priced_inputs import check_restriction
from costopt.backtesting.backtest import backtest as run_backtest
from costopt.backtesting.backtest import backtest_config, hindsight_policy, trial_keys
from costopt.backtesting.executors import TrialExecutor
from costopt.backtesting.grid import GROUPS, BacktestGrid, build_grid
from costopt.backtesting.ranking import PolicySummary, summarize_policies
from costopt.backtesting.results_file import ResultsFile, open_results_file
from costopt.backtesting.trial import HINDSIGHT, ORACLES, BacktestConfig, Score, Trial, TrialKeys
from costopt.domain.account import Account
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.policy import Policy, StrategySpec
from costopt.domain.ports import Strategy
from costopt.engine.settings import DEFAULT_COOLDOWN_S
from costopt.planning.what_if import Capacity
from costopt.render.table import Table
from costopt.render.tabular import Tabular
from costopt.strategies import strategy_names

Group = Literal["all", "market", "deadline", "startup"]
BacktestFrame = Literal["summaries", "scores"]
FRAMES: tuple[BacktestFrame, ...] = ("summaries", "scores")
BacktestPlot = Literal["dollars", "spend", "progress", "pools"]
PLOTS: tuple[BacktestPlot, ...] = ("dollars", "spend", "progress", "pools")
ScoredTrial = tuple[Trial, Score]
StrategyFactory = Callable[[], Strategy]


if TYPE_CHECKING:
    from pandas import DataFrame

    from costopt.render.notebook import Chart


class BacktestProgress(Protocol):
    """Shows how far a backtest is."""

    def __call__(
        self, scores: Iterator[ScoredTrial], *, total: int, known: int, notes: tuple[str, ...]
    ) -> Iterable[ScoredTrial]:
        """Yield all of ``scores`` as they come: ``total`` in number, of which the first ``known``
        were read from the results file. ``notes`` are what is known to be missing."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class BacktestResult(Tabular):
    """How policies did on the same windows, beside baselines and the hindsight optimum.

    ``summaries`` has one entry per group and policy, ``scores`` one per window and policy.
    ``notes`` are sentences on missing windows and failed strategies. Dollars are USD, energy kWh;
    None is unknown.
    """

    job: Job
    scores: tuple[ScoredTrial, ...]
    summaries: tuple[PolicySummary, ...]
    notes: tuple[str, ...]
    grid: BacktestGrid
    config: BacktestConfig

    def to_frame(self, what: BacktestFrame = "summaries") -> DataFrame:
        """Return one row per group and policy (fields of PolicySummary), or per window and policy
        (``scores``: the window, and fields of Score).

        Raise MissingExtraError without pandas.
        """
        from costopt.frames import scores_frame, standings_frame

        if check_choice("what", what, FRAMES) == "scores":
            return scores_frame(self.scores)
        return standings_frame(self.summaries)

    def plot(self, what: BacktestPlot = "dollars") -> Chart:
        """Return a chart: the dollars of each policy; or of the first window, which is replayed
        again, spend, progress or pools over time."""
        from costopt.render.notebook import to_chart
        from costopt.render.reports import backtest_charts as charts
        from costopt.render.reports.backtest import first_window
        from costopt.render.reports.pool_hours import pool_bars

        chosen = check_choice("what", what, PLOTS)
        if chosen == "dollars":
            bars = charts.cost_bars(charts.CostBar.of(self.summaries))
            return to_chart(f"Dollars per run of {self.job.name}", bars)
        curves, _ = first_window(self.grid, self.config)
        title = f"{chosen.capitalize()} of {self.job.name} in the first window"
        drawn = charts.drawable(curves)
        match chosen:
            case "spend":
                return to_chart(title, charts.spend_curves(drawn))
            case "progress":
                return to_chart(title, charts.progress_curves(drawn))
            case "pools":
                return to_chart(title, pool_bars({name: c.stays for name, c in drawn.items()}))

    def table(self) -> Table:
        """Return the table of the summaries."""
        from costopt.views.backtest import standings_table

        return standings_table(
            self.summaries,
            job=self.job.name,
            coverages=self.grid.coverages,
            windows=len(self.grid.windows),
            spans_h=self.grid.spans_h,
            past_s=self.config.history_s,
        )

    def regret_table(self) -> Table:
        """Return the table of what each policy lost against the hindsight optimum, and to what.

        Raise SpecError where the backtest did not measure it.
        """
        from costopt.views.backtest import regret_table

        if self.config.regret_against is None:
            raise bad_argument("regret", "is off", "backtest with regret=True")
        title = f"{self.job.name}: dollars above the hindsight optimum, mean per window"
        return regret_table(self.summaries, title)

    def to_html(self) -> str:
        """Return results, curves and decisions of the first window as one HTML document."""
        from costopt.render.reports.backtest import grid_page

        return grid_page(self.summaries, self.grid, self.config, self.scores)


def backtest(
    job: JobSource,
    policies: Policy | StrPath | Iterable[Policy | StrPath],
    markets: Market | StrPath | Iterable[Market | StrPath],
    *,
    starts: int = 1,
    deadlines: Span | Iterable[Span] = (),
    startups: Span | Iterable[Span] = (),
    history_s: float = 0.0,
    notice_s: float | None = None,
    cooldown_s: float = DEFAULT_COOLDOWN_S,
    forecasts: bool = False,
    over_gaps: bool = False,
    bounds: bool = False,
    regret: bool = False,
    account: Account | StrPath | None = None,
    provider: str | Sequence[str] = (),
    region: str | Sequence[str] = (),
    gpus: str | None = None,
    capacity: Capacity = "policy",
    carbon: StrPath | None = None,
    strategies: Mapping[str, StrategyFactory] | None = None,
    by: Group = "all",
    seed: int = 0,
    processes: int | None = 1,
    ray: str | None = None,
    results: StrPath | None = None,
    progress: BacktestProgress | None = None,
) -> BacktestResult:
    """Replay the job under each policy on windows of recorded markets, on the engine of live runs.

    Beside the policies, three baselines (on demand, greedy spot, uniform progress) and the
    hindsight optimum are replayed. On each market the job begins at ``starts`` instants spread over
    the record, wherever its own start lies, with each of ``deadlines`` (durations from the start)
    and ``startups`` (start-up times of a node) in place of its own. ``over_gaps`` lets windows
    span gaps, as if there were no capacity in them.

    A run knows nothing of the market before its start, unless ``history_s`` lets policies that
    learn observe that many seconds (infinity: all); with ``forecasts`` they plan by forecasts from
    the record so far. ``notice_s`` is the notice before an interruption
    (default: what the pool's provider gives), ``cooldown_s`` for how
    long a pool is avoided that refused or interrupted a node. ``bounds`` adds the default
    strategy with the record's rates of interruption known, and Uniform Progress with each
    interruption known. ``regret`` measures what each run lost against the optimum, and to what,
    which takes about as long as a few optima. ``carbon`` is a file of recorded intensities.
    ``provider``, ``region``, ``gpus`` and ``capacity`` restrict policies and baselines, as for
    ``plan``.

    ``strategies`` are strategies of the caller by name: classes, or functions without parameters
    that return a new one. Each is tried as a policy of its name with objective and limits of the
    first policy, behind the shield of all strategies; ``policies`` may place it by that name.

    ``by`` is what summaries are grouped by, ``seed`` that of their bootstrap intervals. Trials run
    in ``processes`` (None: as many as are worth while), or on the Ray cluster at ``ray``; the
    figures are the same. A script that uses several must call this under
    ``if __name__ == "__main__"``. Scores are appended to the file ``results`` and not computed
    again; ``progress`` sees them as they come.

    Raise SpecError for a bad argument, InfeasibleError where no pool of a market can do the job in
    time, MarketError where a record has no room for a window, MissingExtraError without Ray,
    StoreError if the results file cannot be used, or holds scores under other settings.
    """
    own = _check_strategies(strategies)
    asked = _policies(policies, own)
    run = TrialExecutor(_processes(processes, own), ray).runner()
    group = GROUPS[check_choice("by", by, GROUPS)]
    found_markets = check_markets(markets)
    shared = check_account(account)
    allowed = check_restriction(provider, region, gpus, capacity)
    task = check_job(job, found_markets[0].starts_at, shared, allowed.gpus)
    for market in found_markets:
        allowed.check_names(shared, market.history)
    chosen = [allowed.apply(policy) for policy in asked]
    intensities = None if carbon is None else Path(carbon)
    config = backtest_config(
        _by_name(found_markets),
        notice_s=None if notice_s is None else check_number("notice_s", notice_s),
        cooldown_s=check_number("cooldown_s", cooldown_s),
        price_forecasts=forecasts,
        carbon=intensities,
        account=shared,
        past_s=check_number("history_s", history_s, open_end=True),
        strategies=own,
    )
    if regret:
        config = replace(config, regret_against=hindsight_policy(chosen[0]))
    grid = build_grid(
        task,
        chosen,
        config,
        starts=check_count("starts", starts, low=1),
        deadlines_s=check_spans_s("deadlines", deadlines, low=1.0),
        startups_s=check_spans_s("startups", startups),
        bounds=bounds,
        over_gaps=over_gaps,
    )
    keys = trial_keys(config, price_forecasts=forecasts, carbon=intensities) if results else None
    with _open_results(results, keys, task) as file:
        known, notes = 0, grid.notes
        if file is not None and keys is not None:
            known = sum(keys.of(trial) in file.known for trial in grid.trials)
            notes = (*grid.notes, *_file_notes(file, known, len(grid.trials)))
        found = run_backtest(config, grid.trials, run, file, keys)
        if progress is not None:
            shown = progress(found, total=len(grid.trials), known=known, notes=notes)
            found = iter(shown)
        scores = tuple(found)
    if len(scores) != len(grid.trials):
        problem = f"yielded {len(scores)} of {len(grid.trials)} scores"
        raise bad_argument("progress", problem, "yield every score that it is given")
    return BacktestResult(
        job=task,
        scores=scores,
        summaries=tuple(summarize_policies(scores, grid.labels, group, seed)),
        notes=(*notes, *_failure_notes(scores)),
        grid=grid,
        config=config,
    )


def _check_strategies(strategies: object) -> Mapping[str, StrategyFactory]:
    """Return the caller's strategies. Raise SpecError unless each can be made and has a new
    name."""
    if strategies is None:
        return {}
    if not isinstance(strategies, Mapping):
        hint = "pass a mapping, such as {'mine': MyStrategy}"
        raise bad_argument("strategies", f"is {strategies!r}", hint)
    taken = (*strategy_names(), HINDSIGHT, *ORACLES)
    for name, factory in strategies.items():
        if not isinstance(name, str) or not name or name in taken:
            hint = f"use another name than {', '.join(taken)}"
            raise bad_argument("strategies", f"cannot be named {name!r}", hint)
        _check_factory(name, factory)
    return strategies


def _check_factory(name: str, factory: object) -> None:
    problem = "is not callable"
    if callable(factory):
        try:
            made = factory()
        except Exception as error:  # noqa: BLE001 - the caller's code
            problem = f"cannot be made: {type(error).__name__}: {error}"
        else:
            if callable(getattr(made, "decide", None)) and not isinstance(made, type):
                return
            problem = f"makes a {type(made).__name__}, which has no method decide(view)"
    hint = "pass a class, or a function without parameters, that makes a strategy"
    raise bad_argument("strategies", f"hold {name!r}, which {problem}", hint)


def _policies(policies: object, own: Mapping[str, StrategyFactory]) -> list[Policy]:
    """Return the policies with those of the caller's strategies, which follow the others where
    their names are not among them."""
    asked = as_tuple(policies)
    given = [None if _names(each, own) else _policy(each, own) for each in asked]
    first = next((policy for policy in given if policy is not None), None)
    like = first or check_policies("cheapest" if asked else ())[0]
    of_own = {name: replace(like, name=name, strategy=StrategySpec(name)) for name in own}
    placed = [policy or of_own[str(each)] for each, policy in zip(asked, given, strict=True)]
    used = {policy.strategy.name for policy in placed}
    return [*placed, *(policy for name, policy in of_own.items() if name not in used)]


def _policy(policy: object, own: Mapping[str, StrategyFactory]) -> Policy:
    """Return the policy; the strategy of one that names the caller's has been checked."""
    if isinstance(policy, Policy) and policy.strategy.name in own:
        return policy
    return check_policy(policy)


def _names(policy: object, own: Mapping[str, StrategyFactory]) -> bool:
    return isinstance(policy, str) and policy in own


def _processes(processes: object, own: Mapping[str, StrategyFactory]) -> int | None:
    """Return how many processes to use, one by default where others cannot make a strategy.

    Raise SpecError if more are requested then.
    """
    count = None if processes is None else check_count("processes", processes, low=1)
    alien = [name for name, factory in own.items() if not _is_importable(factory)]
    if count == 1 or not alien:
        return count
    if count is None:
        return 1
    hint = "move it to a module, and import it from there; or use processes=1"
    problem = f"hold {alien[0]!r}, which other processes cannot import"
    raise bad_argument("strategies", problem, hint)


def _is_importable(factory: StrategyFactory) -> bool:
    """Return whether other processes can import what makes a strategy.

    They run a script that is called by its path again, but have no cells of a notebook.
    """
    try:
        sent = dumps(factory)
    except (PicklingError, AttributeError, TypeError):
        return False
    main = sys.modules["__main__"]
    is_script = main.__spec__ is not None or hasattr(main, "__file__")
    return is_script or b"__main__" not in sent


def _by_name(markets: Iterable[Market]) -> dict[str, MarketHistory]:
    """Return markets by name; by file where two have one name. Raise SpecError for no way to tell
    two apart."""
    distinct = {id(market): market for market in markets}.values()
    counts = Counter(market.name for market in distinct)
    found: dict[str, MarketHistory] = {}
    for market in distinct:
        name = market.name if counts[market.name] == 1 else str(market.path or market.name)
        if name in found:
            raise bad_argument("markets", f"hold two named {name!r}", "give each another name")
        found[name] = market.history
    return found


def _open_results(
    results: StrPath | None, keys: TrialKeys | None, job: Job
) -> AbstractContextManager[ResultsFile | None]:
    if results is None or keys is None:
        return nullcontext()
    return open_results_file(Path(results), keys.settings(job))


def _file_notes(file: ResultsFile, known: int, total: int) -> Iterator[str]:
    if file.dropped:
        lines = "1 damaged line is" if file.dropped == 1 else f"{file.dropped} damaged lines are"
        yield f"{file.path}: {lines} left out"
    if known:
        yield f"{file.path}: {known} of {total} runs are already in it"


def _failure_notes(scores: Iterable[ScoredTrial]) -> Iterator[str]:
    """Yield for each policy how many of its runs failed, and the first reason."""
    runs: Counter[str] = Counter()
    reasons: dict[str, list[str]] = {}
    for trial, score in scores:
        runs[trial.label] += 1
        if score.strategy_failure is not None:
            reasons.setdefault(trial.label, []).append(score.strategy_failure)
    for label, found in reasons.items():
        yield (
            f"in {len(found)} of {runs[label]} runs the strategy of policy {label} failed, and the "
            f"shield decided, as it would live: {found[0]}"
        )
