"""What the daemon reports to the program that runs it: readiness, its end, and that it lives.

systemd, and podman with ``--sdnotify``, hand over a socket (sd_notify(3)); under WatchdogSec they
end a daemon that stops reporting. Where there is a WATCHDOG_USEC and no socket, as in the image,
the process ends on its own then, so that the container is started again. The stacks of its threads
go to stderr.
"""

from __future__ import annotations

import faulthandler
import math
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

REPORTS_PER_LIMIT = 4.0
STDERR = 2


class ServiceManager:
    """Reports to the service manager that ``environment`` names, if it names one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._limit_s = _watchdog_s(environment)
        self._reported_s = -math.inf

    def report_ready(self) -> None:
        """Report that the daemon answers."""
        self._send("READY=1")

    def report_alive(self) -> None:
        """Report that the daemon works, as often as the manager asks for; call it more often."""
        if self._limit_s is None:
            return
        now_s = time.monotonic()
        if now_s - self._reported_s < self._limit_s / REPORTS_PER_LIMIT:
            return
        self._reported_s = now_s
        if self._address:
            self._send("WATCHDOG=1")
        else:
            faulthandler.dump_traceback_later(self._limit_s, exit=True, file=STDERR)

    def report_status(self, text: str) -> None:
        """Report in a line what the daemon does."""
        self._send(f"STATUS={text}")

    def report_stopping(self) -> None:
        """Report that the daemon is ending, which may take longer than the watchdog allows."""
        self._send("STOPPING=1")
        self._limit_s = None
        faulthandler.cancel_dump_traceback_later()

    def _send(self, message: str) -> None:
        if not self._address:
            return
        # An abstract socket's name begins with a null byte, written as "@".
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        with (
            suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as link,
        ):
            link.sendto(message.encode(), address)


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    """Return the seconds after which a daemon that reports nothing counts as hung, None if it is
    not watched (sd_watchdog_enabled(3))."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    with suppress(ValueError):
        limit_us = int(environment.get("WATCHDOG_USEC", ""))
        return limit_us / 1e6 if limit_us > 0 else None
    return None
