"""SIGTERM as the notice of an interruption: what Slurm and a pod's kubelet send.

Slurm signals the processes that srun started at preemptions and time limits. The nodes are taken
after the partition's GraceTime, or earlier where all processes have left. At ``scancel`` a step
gets the same signal; its processes are killed after the cluster's KillWait. With cgroups only the
process that srun started is signalled, which is the agent; without, what it started is signalled
too.
"""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from datetime import UTC, datetime

from costopt.agent.notices.base import NoNotices, Notice
from costopt.protocol.stop_signals import handle_stop_signals


class SigtermNoticeSource(NoNotices):
    """Takes SIGTERM as the notice of an end in ``grace_s`` seconds."""

    signals = frozenset({signal.SIGTERM})

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._notice: Notice | None = None
        self._handled = ExitStack()

    def start(self) -> None:
        """Handle the signal from now on; Python does so in the main thread only."""
        self._handled.enter_context(handle_stop_signals(self._announce, self.signals))

    def notice(self) -> Notice | None:
        """Return the notice, or None before the first signal."""
        return self._notice

    def close(self) -> None:
        """Handle the signal no longer."""
        self._handled.close()

    def _announce(self, _: int) -> None:
        if self._notice is None:
            deadline_at = time.time() + self._grace_s
            at = datetime.fromtimestamp(deadline_at, UTC).isoformat()
            self._notice = Notice("terminate", at, deadline_at)
