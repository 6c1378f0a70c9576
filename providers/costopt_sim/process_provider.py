"""Process mode: each node is a process group that runs the agent.

Everything about a node lies in ``state_dir/nodes/<id>``: node.json (what it is and its process),
notice.json (appears when the market interrupts it), agent.log and what the agent writes. A
controller that restarts on the same ``state_dir`` finds its nodes there, running or not. Nodes are
not interrupted while no controller runs: an interruption that was due meanwhile is applied at once
on the restart and recorded at its time in the market. So is the start of a node that waited.
"""

from __future__ import annotations

import sys
import threading
import traceback

from costopt.domain.errors import CostoptError
from costopt.domain.ports import Clock
from costopt.domain.runtime import Runtime
from costopt_sim.fleet import SimFleet
from costopt_sim.options import ProcessOptions
from costopt_sim.process_host import ProcessHost
from costopt_sim.provider import SimProvider

WATCH_S = 0.05


def connect_processes(clock: Clock, options: ProcessOptions) -> ProcessProvider:
    """A provider whose nodes are processes; those of an earlier controller are taken over."""
    host = ProcessHost(
        options.state_dir.resolve(),
        options.store.resolve(),
        launcher=options.launcher,
        processes=options.processes,
        secrets=options.secrets and options.secrets.resolve(),
    )
    fleet = SimFleet(options.market, options.notice_s, host)
    nodes, interruptions = host.found()
    fleet.adopt(nodes, interruptions)
    return ProcessProvider(clock, fleet, options.runtime, host)


class ProcessProvider(SimProvider):
    """A SimProvider whose market advances in a thread, until ``close``."""

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
