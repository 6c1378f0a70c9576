"""Where the daemon's threads leave what others may see."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, deque
from datetime import datetime
from threading import Lock

from costopt.daemon.snapshot import TickSnapshot
from costopt.daemon.views import Alert
from costopt.domain.quota import Quota

BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
MAX_ALERTS = 1000


class SharedState:
    """Safe to share between threads. ``began`` is the daemon's clock when it was made.

    ``quotas`` are what the clouds say that the account may have.
    """

    def __init__(self, began: datetime) -> None:
        self._lock = Lock()
        self._snapshot = TickSnapshot(began)
        self._alerts: deque[Alert] = deque(maxlen=MAX_ALERTS)
        self._alert_count = 0
        self._standing: dict[tuple[str, str], str] = {}
        self._buckets = [0] * (len(BUCKETS_S) + 1)
        self.tick_count = 0
        self.tick_sum_s = 0.0
        self.ticked_at: datetime | None = None
        self.tick_failure = ""
        self.orphans: tuple[str, ...] = ()
        self.quotas: tuple[Quota, ...] = ()
        self.leads = True
        self._ticked_mono_s: float | None = None
        self._task_runs: Counter[tuple[str, str]] = Counter()

    def publish(self, snapshot: TickSnapshot, took_s: float) -> None:
        """A tick ended well."""
        with self._lock:
            self._snapshot = snapshot
            self.ticked_at = snapshot.now
            self.tick_failure = ""
            self._ticked_mono_s = time.monotonic()
            self.tick_count += 1
            self.tick_sum_s += took_s
            self._buckets[bisect_left(BUCKETS_S, took_s)] += 1

    def set_standby(self) -> None:
        """The loop goes on, and another daemon leads."""
        with self._lock:
            self.tick_failure = ""
            self._ticked_mono_s = time.monotonic()

    @property
    def snapshot(self) -> TickSnapshot:
        """What the last tick left, empty before the first."""
        return self._snapshot

    @property
    def tick_age_s(self) -> float | None:
        """Seconds of the wall since the loop last went well; None before it first did."""
        at = self._ticked_mono_s
        return None if at is None else time.monotonic() - at

    def tick_buckets(self) -> tuple[tuple[float, int], ...]:
        """(upper bound in seconds, ticks that took no longer), ascending."""
        with self._lock:
            sums = [sum(self._buckets[: i + 1]) for i in range(len(BUCKETS_S))]
        return tuple(zip(BUCKETS_S, sums, strict=True))

    def record_task_run(self, task: str, result: str) -> None:
        """Count a run of a task; ``result`` is "ok", "failed" or "missed"."""
        with self._lock:
            self._task_runs[task, result] += 1

    def task_runs(self) -> dict[tuple[str, str], int]:
        """Runs by (task, result)."""
        with self._lock:
            return dict(self._task_runs)

    def alert(self, at: datetime, kind: str, job: str, message: str) -> None:
        """Tell people, once for as long as the same goes on: until ``settled``."""
        with self._lock:
            if self._standing.get((kind, job)) is not None:
                return
            self._standing[kind, job] = message
            self._alert_count += 1
            self._alerts.append(Alert(self._alert_count, at, kind, job, message))

    def settled(self, kind: str, job: str) -> None:
        """What was alerted of is over, and would be news again."""
        with self._lock:
            self._standing.pop((kind, job), None)

    def alerts(self, after: int) -> tuple[Alert, ...]:
        """Those with a higher number, oldest first; only the newest are kept."""
        with self._lock:
            return tuple(alert for alert in self._alerts if alert.seq > after)
