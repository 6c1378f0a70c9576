"""Process mode: each node is a process group that runs the agent."""

from __future__ import annotations

from costopt.domain.errors import BadRequestError
from costopt.domain.ports import Clock
from costopt_sim.options import SimOptions
from costopt_sim.provider import SimProvider


def connect_processes(clock: Clock, options: SimOptions) -> SimProvider:
    """A provider whose nodes are processes. Raises BadRequestError."""
    raise BadRequestError(
        f"costopt_sim: process mode is not built for market {options.market.name!r} on {clock!r}",
        hint='use mode "virtual"',
    )
