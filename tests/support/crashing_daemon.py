"""``costopt`` that kills itself at a point: crashing_daemon.py POINT ARGUMENT…

A point is "after EVENT": the first event of this kind is in the ledger, or "after launch": the
cloud has carried a launch out, and nobody knows of it yet.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from costopt.cli.main import cli
from costopt.domain.events import Event
from costopt.ledger.sql_ledger import SqlLedger
from costopt_sim.fleet import SimFleet


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_after_event(kind: str) -> None:
    append = SqlLedger.append

    def and_die(ledger: SqlLedger, *events: Event) -> None:
        append(ledger, *events)
        if any(type(event).__name__ == kind for event in events):
            _die()

    setattr(SqlLedger, "append", and_die)  # noqa: B010 - a method, to mypy


def _kill_after_launch() -> None:
    launch = SimFleet.launch

    def and_die(fleet: SimFleet, *given: Any) -> Any:
        launch(fleet, *given)
        _die()

    setattr(SimFleet, "launch", and_die)  # noqa: B010 - a method, to mypy


if __name__ == "__main__":
    point = sys.argv.pop(1).removeprefix("after ")
    if point == "launch":
        _kill_after_launch()
    else:
        _kill_after_event(point)
    cli()
