"""Process mode: each node is a process group that runs the agent.

Everything about a node lies in ``state_dir/nodes/<id>``: node.json (what it is and its process),
notice.json (appears when the market takes it), agent.log and what the agent writes. A controller
that starts again on the same ``state_dir`` finds its nodes there, running or not. Nobody strikes
while no controller lives: a strike that fell due meanwhile is applied at once on the restart and
recorded at the time at which the market set it. So is the start of a node that waited.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from costopt.domain.errors import BadRequestError, CostoptError
from costopt.domain.ports import Clock
from costopt.domain.runtime import Runtime
from costopt_sim.fleet import SimFleet
from costopt_sim.options import SimOptions
from costopt_sim.process_host import ProcessHost
from costopt_sim.provider import SimProvider

WATCH_S = 0.05
KEYS = frozenset({"state_dir", "store", "runtime", "launcher", "processes"})
LAUNCHERS = ("torchrun", "direct")


def connect_processes(clock: Clock, options: SimOptions) -> ProcessProvider:
    """A provider whose nodes are processes; those of an earlier controller are taken over.

    Options: ``state_dir`` and ``store`` (folders) and ``runtime`` (the Runtime port over that
    store) are required; ``launcher`` is "torchrun" (the default) or "direct", ``processes`` the
    number of trainer processes per node (1). Raises BadRequestError.
    """
    given = options.process
    _check_keys(given)
    runtime = given.get("runtime")
    if not callable(getattr(runtime, "form", None)):
        raise BadRequestError("costopt_sim: process mode needs the option runtime")
    host = ProcessHost(
        _folder(given, "state_dir"),
        _folder(given, "store"),
        launcher=_launcher(given.get("launcher", LAUNCHERS[0])),
        processes=_processes(given.get("processes", 1)),
    )
    fleet = SimFleet(options.market, options.notice_s, host)
    nodes, interruptions = host.found()
    fleet.adopt(nodes, interruptions)
    return ProcessProvider(clock, fleet, cast("Runtime", runtime), host)


class ProcessProvider(SimProvider):
    """A SimProvider whose market moves by itself, in a thread, until ``close``."""

    def __init__(self, clock: Clock, fleet: SimFleet, runtime: Runtime, host: ProcessHost) -> None:
        super().__init__(clock, fleet, runtime)
        self.host = host
        self._complaint = ""
        self._closed = threading.Event()
        self._watch = threading.Thread(target=self._move, name="market", daemon=True)
        self._watch.start()

    def close(self) -> None:
        """Stop the market; nodes that run keep running, for the next controller to find."""
        self._closed.set()
        self._watch.join()

    def _move(self) -> None:
        """A notice may be a fraction of a second of the wall long: it cannot wait for a tick."""
        while not self._closed.wait(WATCH_S):
            try:
                now = self._clock.now()
                self.fleet.advance(now)
                for node_id, message in self.host.dead():
                    self.fleet.fail(node_id, now, message)
            except CostoptError as error:
                self._complain(error.message)
            except Exception:  # noqa: BLE001  the market must not stand still for one bad node
                traceback.print_exc(file=sys.stderr)

    def _complain(self, message: str) -> None:
        """Once for as long as the same is wrong."""
        if message != self._complaint:
            self._complaint = message
            print(f"costopt: {message}", file=sys.stderr, flush=True)  # noqa: T201


def _check_keys(given: Mapping[str, object]) -> None:
    unknown = given.keys() - KEYS
    if unknown:
        raise BadRequestError(
            f"costopt_sim: unknown option {', '.join(sorted(unknown))}",
            hint=f"in process mode the options are also {', '.join(sorted(KEYS))}",
        )


def _folder(given: Mapping[str, object], name: str) -> Path:
    value = given.get(name)
    if not isinstance(value, (str, Path)):
        raise BadRequestError(f"costopt_sim: process mode needs the option {name}, a folder")
    return Path(value).resolve()


def _launcher(value: object) -> str:
    if value not in LAUNCHERS:
        raise BadRequestError(
            f"costopt_sim: launcher {value!r} is unknown", hint=f"use {' or '.join(LAUNCHERS)}"
        )
    return str(value)


def _processes(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRequestError(f"costopt_sim: processes must be a count from 1, not {value!r}")
    return value
