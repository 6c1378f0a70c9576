"""How long the nodes of one gang have been idle or slow, by what they report. Pure.

Only what is known counts: a node whose utilization is not read is not idle, nor is a gang whose
command reports no progress, and a node that does not report its own pace is not slow. Where the
whole gang is slow no node is, as nodes are compared with the median of their gang. A gang that has
yet to make its first step is idle where nothing that it reports has changed for long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median_low

from costopt.domain.gpu_health import HealthIssue, HealthRules
from costopt.domain.progress import GangState, Progress
from costopt.domain.runtime import NodeReport

GANG = ""
"""In place of a node's id: the whole gang."""
MAX_PAUSES = 3.0
"""Times the longest pause between two reports of progress that a gang may pause. A trainer that
reports once an epoch is not idle in between."""

Finding = tuple[HealthIssue | None, str]
"""What is wrong, None for nothing, and its description."""


@dataclass(slots=True)
class _NodeWatch:
    """Seconds idle and slow without a break; ``is_idle`` and ``is_slow`` are None while unknown."""

    read_s: float
    busy_s: float
    reported_at: datetime
    idle_s: float = 0.0
    slow_s: float = 0.0
    is_idle: bool | None = None
    is_slow: bool | None = None


class GangWatch:
    """Watches one gang for as long as it is in one state; nothing is known at first.

    ``moved_at`` is when it made progress last, None before that. ``is_stalled`` says whether it
    makes less than the policy's share of the planned progress, or does not start, None while that
    is unknown.
    """

    def __init__(self, generation: int, state: GangState) -> None:
        self.generation = generation
        self.state = state
        self.moved_at: datetime | None = None
        self.is_stalled: bool | None = None
        self._start: tuple[datetime, str] | None = None
        self._stall = ""
        self._nodes: dict[str, _NodeWatch] = {}
        self._last: tuple[datetime, float] | None = None
        self._since: tuple[datetime, float] | None = None
        self._longest_pause = timedelta(0)

    def observe_start(self, progress: Progress, limit_s: float, now: datetime) -> None:
        """Add what a gang reports that has yet to train: any change of it is progress."""
        report = f"{progress.message} {progress.done_units}"
        if self._start is None or self._start[1] != report:
            self._start, self.is_stalled = (now, report), None
        elif (now - self._start[0]).total_seconds() >= limit_s:
            self.is_stalled = True
            last = progress.message or "no message"
            self._stall = f"idle: no first step, and no news for {limit_s / 60:.0f} min ({last})"

    def observe(
        self,
        progress: Progress,
        planned_units_per_s: float | None,
        reports: Sequence[NodeReport],
        kinds: Mapping[str, str],
        rules: HealthRules,
        limit_s: float,
        formed_at: datetime,
        now: datetime,
    ) -> None:
        """Add what the nodes report while they train. Nodes of one of ``kinds`` are alike; the gang
        may pause for ``limit_s``."""
        if not progress.unreported:
            if self._last is None:
                self._observe_first_steps(progress, formed_at, now)
            self._observe_progress(progress.done_units, planned_units_per_s, rules, limit_s, now)
        paces = _paces(reports, kinds)
        for report in reports:
            self._observe_node(report, paces.get(report.node_id), rules)

    def findings(
        self,
        reports: Sequence[NodeReport],
        known: Mapping[str, HealthIssue | None],
        rules: HealthRules,
    ) -> Iterator[tuple[str, Finding]]:
        """Yield each node's state, and the gang's; ``known`` are the issues found before."""
        stalled = HealthIssue.IDLE if self.is_stalled else None
        if self.is_stalled is not None:
            words = self._stall or _words(HealthIssue.IDLE, GANG, rules)
            yield GANG, (stalled, words if stalled else "")
        for report in reports:
            yield report.node_id, self._finding(report, known.get(report.node_id), rules)

    def is_confirmed(self, node_id: str, issue: HealthIssue | None) -> bool:
        """Return whether the issue is seen now, and not only remembered."""
        watch = self._nodes.get(node_id)
        if issue is HealthIssue.IDLE:
            return bool(self.is_stalled if node_id == GANG else watch and watch.is_idle)
        return issue is HealthIssue.FAULT or bool(watch and watch.is_slow)

    def _finding(
        self, report: NodeReport, known: HealthIssue | None, rules: HealthRules
    ) -> Finding:
        """Return the node's worst issue; one found before lasts until the opposite is seen."""
        node_id, health, watch = report.node_id, report.gpu_health, self._nodes.get(report.node_id)
        faults = () if health is None else health.faults
        if faults or known is HealthIssue.FAULT:
            return HealthIssue.FAULT, f"GPU failure: {', '.join(faults)}"
        seen = (None, None) if watch is None else (watch.is_idle, watch.is_slow)
        for issue, holds in zip((HealthIssue.IDLE, HealthIssue.SLOW), seen, strict=True):
            if holds or (holds is None and known is issue):
                return issue, _words(issue, node_id, rules)
        if health is not None and health.warnings:
            return HealthIssue.WARNING, f"GPU warning: {', '.join(health.warnings)}"
        return None, ""

    def _observe_first_steps(self, progress: Progress, formed_at: datetime, now: datetime) -> None:
        """Steps that were made before the first observation are progress: where the next one does
        not come, the gang hangs. They may be as far apart as the first was from the start."""
        began = progress.resumed_units
        if began is not None and progress.done_units > began:
            self.moved_at, self._longest_pause = now, max(timedelta(0), now - formed_at)

    def _observe_progress(
        self,
        done_units: float,
        planned_units_per_s: float | None,
        rules: HealthRules,
        limit_s: float,
        now: datetime,
    ) -> None:
        moved_at, units = self._last = self._last or (now, done_units)
        if done_units != units:
            self._last = now, done_units
        if done_units > units:
            self._longest_pause = max(self._longest_pause, now - moved_at)
            self.moved_at = now
        if done_units < units:
            self._since = None
        if self.moved_at is None:
            return
        since_at, since_units = self._since = self._since or (now, done_units)
        lasted, moved_units = now - since_at, done_units - since_units
        due_units = rules.idle_below * (planned_units_per_s or 0.0) * lasted.total_seconds()
        if lasted and moved_units >= due_units and (moved_units or planned_units_per_s):
            self._since, self.is_stalled = (now, done_units), False
        elif lasted >= max(timedelta(seconds=limit_s), MAX_PAUSES * self._longest_pause):
            self.is_stalled = True

    def _observe_node(self, report: NodeReport, pace: float | None, rules: HealthRules) -> None:
        health = report.gpu_health
        read_s, busy_s = (0.0, 0.0) if health is None else (health.watched_s, health.busy_s)
        watch = self._nodes.get(report.node_id)
        if watch is None or read_s < watch.read_s:
            self._nodes[report.node_id] = _NodeWatch(read_s, busy_s, report.until_at)
            return
        more_s, busy = read_s - watch.read_s, busy_s - watch.busy_s
        passed_s = max(0.0, (report.until_at - watch.reported_at).total_seconds())
        watch.read_s, watch.busy_s, watch.reported_at = read_s, busy_s, report.until_at
        if more_s > 0:
            watch.idle_s = watch.idle_s + more_s if busy < rules.idle_below * more_s else 0.0
            watch.is_idle = _holds(watch.idle_s, rules.idle_after_s)
        if pace is not None:
            watch.slow_s = watch.slow_s + passed_s if pace > rules.slow_beyond else 0.0
            watch.is_slow = _holds(watch.slow_s, rules.slow_after_s)


def _holds(lasted_s: float, enough_s: float) -> bool | None:
    """Return whether something has lasted; None while it is too early to say."""
    if lasted_s == 0.0:
        return False
    return True if lasted_s >= enough_s else None


def _paces(reports: Sequence[NodeReport], kinds: Mapping[str, str]) -> dict[str, float]:
    """Return each node's time for a microbatch over the median of its kind, where two report."""
    times: dict[str, list[float]] = {}
    for report in reports:
        if report.microbatch_s is not None:
            times.setdefault(kinds.get(report.node_id, ""), []).append(report.microbatch_s)
    medians = {kind: median_low(known) for kind, known in times.items() if len(known) > 1}
    return {
        report.node_id: report.microbatch_s / medians[kind]
        for report in reports
        if report.microbatch_s is not None and (kind := kinds.get(report.node_id, "")) in medians
    }


def _words(issue: HealthIssue, node_id: str, rules: HealthRules) -> str:
    if issue is HealthIssue.SLOW:
        times = f"{rules.slow_beyond:g} times the median of its gang"
        return f"slow: its steps took over {times} for {rules.slow_after_s / 60:g} min"
    share, time = f"under {rules.idle_below:.0%}", f"{rules.idle_after_s / 60:g} min"
    if node_id == GANG:
        return f"idle: {share} of the planned progress in {time}"
    return f"idle: its GPUs were busy for {share} of {time}"
