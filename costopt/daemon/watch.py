"""What a person should hear of, seen in what ticks leave behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from costopt.daemon.board import SharedState
from costopt.daemon.snapshot import TickSnapshot
from costopt.ledger.summary import JobState, JobSummary

STORM_WINDOW = timedelta(hours=1)
STORM_COUNT = 10
"""So many interruptions within the hour are a storm."""
ENDED = (JobState.FINISHED, JobState.FAILED)


class AlertMonitor:
    """Compares each snapshot with what was normal, and alerts once for as long as it is not."""

    def __init__(self, board: SharedState) -> None:
        self._board = board
        self._troubled: set[str] = set()
        self._failing: dict[str, str] = {}
        self._interruptions: dict[str, int] = {}
        self._closed: frozenset[str] = frozenset()
        self._recent: deque[tuple[datetime, int]] = deque()

    def look(self, seen: TickSnapshot) -> None:
        """What the newest tick left; jobs that are closed are looked at once more."""
        over = self._closed & seen.closed
        jobs = {name: job for name, job in seen.summaries.items() if name not in over}
        for name, summary in jobs.items():
            self._look_at_deadline(seen, summary)
            if name in seen.guarded:
                self._board.alert(seen.now, "budget", name, f"{name}: {seen.guarded[name]}")
            else:
                self._board.settled("budget", name)
            if summary.state is JobState.FAILED:
                self._board.alert(seen.now, "failed", name, f"{name} failed")
        self._look_for_troubles(seen)
        self._look_for_failing_nodes(seen)
        self._look_for_storm(seen, jobs)
        self._forget(seen.closed - over)
        self._closed = seen.closed

    def _look_for_troubles(self, seen: TickSnapshot) -> None:
        for name in self._troubled - seen.troubles.keys():
            self._board.settled("trouble", name)
        for name, why in seen.troubles.items():
            self._board.alert(seen.now, "trouble", name, f"{name}: {why}")
        self._troubled = set(seen.troubles)

    def _look_for_failing_nodes(self, seen: TickSnapshot) -> None:
        """Each further failure is news: the second may say more than the first."""
        for name in self._failing.keys() | seen.failing_nodes.keys():
            why = seen.failing_nodes.get(name)
            if why != self._failing.get(name):
                self._board.settled("nodes", name)
            if why is not None:
                self._board.alert(seen.now, "nodes", name, f"{name}: {why}")
        self._failing = dict(seen.failing_nodes)

    def _look_at_deadline(self, seen: TickSnapshot, summary: JobSummary) -> None:
        name = summary.job
        decision = seen.decisions.get(name)
        slack_s = None if decision is None else decision.slack_s
        short = slack_s is not None and slack_s < 0 and summary.state not in ENDED
        if summary.on_time is False:
            self._board.alert(seen.now, "deadline", name, f"{name} misses its deadline")
        elif short:
            self._board.alert(
                seen.now, "deadline", name, f"{name} is short of {-(slack_s or 0.0):.0f} s"
            )
        else:
            self._board.settled("deadline", name)

    def _forget(self, closed: Iterable[str]) -> None:
        for name in closed:
            self._interruptions.pop(name, None)
            for kind in ("deadline", "budget", "failed"):
                self._board.settled(kind, name)

    def _look_for_storm(self, seen: TickSnapshot, jobs: Mapping[str, JobSummary]) -> None:
        new = 0
        for name, summary in jobs.items():
            new += summary.interruptions - self._interruptions.get(name, summary.interruptions)
            self._interruptions[name] = summary.interruptions
        if new:
            self._recent.append((seen.now, new))
        while self._recent and self._recent[0][0] <= seen.now - STORM_WINDOW:
            self._recent.popleft()
        count = sum(number for _, number in self._recent)
        if count >= STORM_COUNT:
            message = f"{count} nodes were interrupted within the last hour"
            self._board.alert(seen.now, "interruptions", "", message)
        else:
            self._board.settled("interruptions", "")
