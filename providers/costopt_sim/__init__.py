"""The embedded provider: a recorded or generated market that gives nodes and takes them away.

``connect`` is the entry point ``sim``. In ``virtual`` mode nodes are records and training is
arithmetic, so that days pass in milliseconds; in ``process`` mode each node is a process group
that runs the agent. Both serve the same market through the same fleet.
"""

from __future__ import annotations

from costopt.domain.ports import Clock
from costopt.provider.base import ProviderOptions
from costopt_sim.fleet import SimFleet
from costopt_sim.options import ProcessOptions, SimMode, SimOptions
from costopt_sim.provider import SimProvider
from costopt_sim.runtime import VirtualRuntime

__all__ = ["OPTIONS", "SimFleet", "SimOptions", "SimProvider", "VirtualRuntime", "connect"]

OPTIONS = SimOptions


def connect(clock: Clock, options: ProviderOptions) -> SimProvider:
    """The provider over ``options["market"]``; its ``runtime`` trains on the nodes it gives.

    The options are those of ``SimOptions``, in process mode of ``ProcessOptions``. Raises
    BadRequestError.
    """
    if options.get("mode") == SimMode.PROCESS:
        from costopt_sim.process_provider import connect_processes

        return connect_processes(clock, ProcessOptions.parse(options))
    parsed = SimOptions.parse(options)
    fleet = SimFleet(parsed.market, parsed.notice_s)
    return SimProvider(
        clock, fleet, VirtualRuntime(clock, fleet, parsed.machines, parsed.transfers)
    )
