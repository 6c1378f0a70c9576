"""Slurm: the partitions of a cluster as pools, reached by its own commands, here or over ssh.

``connect`` is the entry point ``slurm``. It needs no rights beyond those of a user of the cluster,
and nothing to be installed there but costopt itself.
"""

from __future__ import annotations

from costopt.domain.ports import Clock
from costopt.provider.base import ProviderOptions
from costopt_slurm.commands import CommandRunner
from costopt_slurm.options import SlurmOptions
from costopt_slurm.provider import SlurmProvider
from costopt_slurm.queries import SlurmQueries

__all__ = ["OPTIONS", "SlurmOptions", "SlurmProvider", "connect"]

OPTIONS = SlurmOptions


def connect(clock: Clock, options: ProviderOptions) -> SlurmProvider:
    """Return the provider for the partitions of ``options``; see ``SlurmOptions``.

    Raise BadRequestError if an option is missing, unknown or malformed. No command is run yet.
    """
    parsed = SlurmOptions.parse(options)
    runner = CommandRunner(parsed.host, parsed.slurm_conf, parsed.bin, parsed.timeout_s)
    return SlurmProvider(clock, parsed, SlurmQueries(runner))
