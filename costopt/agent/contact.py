"""Whether anyone can still reach this node: it must not outlive controller and store for long.

The machine ends itself by a systemd timer that this process renews, so that a killed agent ends
the node as well. A simulated node is a process of the controller's machine, whose store is a folder
that always answers: there the controller's own lock counts alone.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

RENEWALS = 10
"""Of the timer, in the time after which the node ends."""
MAX_RENEWAL_INTERVAL_S = 60.0
LOCK_POLL_S = 1.0
SYSTEMCTL_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class ContactSettings:
    """The agent leaves after ``max_unreachable_s`` without a sign of controller and store.

    ``renew_timer`` is the systemd timer that ends the machine. The controller holds a lock on
    ``controller_lock`` as long as it runs; where it is given, answers of the store do not count.
    """

    max_unreachable_s: float
    renew_timer: str | None = None
    controller_lock: Path | None = None


class Contact:
    """Remembers when controller or store were last heard of, by the monotonic clock."""

    def __init__(self, settings: ContactSettings) -> None:
        self._settings = settings
        self._heard_at = time.monotonic()
        self._renewed_at = self._polled_at = -1e9
        self.error = ""
        """Why the timer was not renewed the last time, "" if it was."""

    def note_store(self) -> None:
        """Record that the store answered."""
        if self._settings.controller_lock is None:
            self._hear()

    def is_lost(self) -> bool:
        """Return whether neither was heard of for too long."""
        lock, now = self._settings.controller_lock, time.monotonic()
        if lock is not None and now - self._polled_at >= LOCK_POLL_S:
            self._polled_at = now
            if _is_held(lock):
                self._hear()
        return now - self._heard_at > self._settings.max_unreachable_s

    def _hear(self) -> None:
        now, unit = time.monotonic(), self._settings.renew_timer
        self._heard_at = now
        every_s = min(MAX_RENEWAL_INTERVAL_S, self._settings.max_unreachable_s / RENEWALS)
        if unit is not None and now - self._renewed_at >= every_s:
            self._renewed_at = now
            self.error = _restart(unit)


def _is_held(path: Path) -> bool:
    """Return whether another process holds a lock on the file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A child that is forked meanwhile has the file open too: closing would leave it locked.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _restart(unit: str) -> str:
    """Let a timer count from now on; return what went wrong, "" if nothing."""
    try:
        done = subprocess.run(  # noqa: S603  the unit is our own
            ["systemctl", "restart", unit],  # noqa: S607  the machine's own
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SYSTEMCTL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"cannot renew {unit}: {error}"
    return "" if done.returncode == 0 else f"cannot renew {unit}: {done.stderr.strip()[-300:]}"
