"""The daemon's settings, apart from those of the account and the jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from costopt.domain.control import Mode
from costopt.engine.settings import DEFAULT_COOLDOWN_S, DEFAULT_PATIENCE_S, DEFAULT_TICK_S


@dataclass(frozen=True, slots=True)
class TaskInterval:
    """A task runs every ``every_s``, later by up to ``jitter_s``, both in seconds of real time.

    A run that was due more than ``grace_s`` before the daemon started is skipped (None: never
    skipped). Missed runs are made up for at most once.
    """

    every_s: float
    jitter_s: float = 0.0
    grace_s: float | None = None


@dataclass(frozen=True, slots=True)
class TaskIntervals:
    """Intervals of the daemon's tasks; the tick's is ``DaemonSettings.tick_s`` of job time.

    Public price lists are not fetched where ``price_lists`` is None.
    """

    prices: TaskInterval = TaskInterval(60.0, 5.0)
    readiness: TaskInterval = TaskInterval(1.0)
    quotas: TaskInterval = TaskInterval(900.0, 60.0)
    orphans: TaskInterval = TaskInterval(300.0, 30.0)
    backup: TaskInterval = TaskInterval(3600.0, 60.0)
    report: TaskInterval = TaskInterval(86_400.0, 600.0)
    price_lists: TaskInterval | None = None
    carbon: TaskInterval = TaskInterval(30.0)
    forecasts: TaskInterval = TaskInterval(2.0)


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """``tick_s``, ``cooldown_s``, ``orphan_grace_s`` and ``patience_s`` are seconds of the jobs'
    clock, the others of the wall clock.

    ``mode`` applies if none was ever set. ``answer_s`` is how long a tick waits for one provider,
    ``decide_s`` how long it decides on jobs before the others keep what they have until the next
    tick, ``launch_s`` how long it starts launches. ``patience_s`` is how long a tenant waits before
    it goes before all others. Of several daemons on one database one leads; another takes over
    ``lease_s`` after the leader last renewed its lease.
    ``database`` is a URL, or None for files in ``state_dir``. ``listen`` is "host:port",
    "unix:PATH" or None for the socket in ``state_dir`` alone; over the network the daemon answers
    under the names ``allowed_hosts`` besides its own. ``backups`` and ``reports`` are the numbers
    that are retained.
    """

    state_dir: Path
    mode: Mode = Mode.OBSERVE
    tick_s: float = DEFAULT_TICK_S
    cooldown_s: float = DEFAULT_COOLDOWN_S
    answer_s: float = 10.0
    decide_s: float = 1.5
    launch_s: float = 30.0
    orphan_grace_s: float = 900.0
    patience_s: float = DEFAULT_PATIENCE_S
    backups: int = 24
    reports: int = 30
    lease_s: float = 15.0
    database: str | None = None
    listen: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    schedule: TaskIntervals = field(default_factory=TaskIntervals)
