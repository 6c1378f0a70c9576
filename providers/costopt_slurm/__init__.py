"""Slurm: the partitions of a cluster as pools, reached by its commands, here or over ssh, or REST.

``connect`` is the entry point ``slurm``. It needs no rights beyond those of a user of the cluster,
and nothing to be installed there but costopt itself.
"""

from __future__ import annotations

from costopt.domain.ports import Clock
from costopt.provider.base import ProviderOptions
from costopt_slurm.access import open_access
from costopt_slurm.options import SlurmOptions
from costopt_slurm.provider import SlurmProvider

__all__ = ["OPTIONS", "SlurmOptions", "SlurmProvider", "connect"]

OPTIONS = SlurmOptions


def connect(clock: Clock, options: ProviderOptions) -> SlurmProvider:
    """Return the provider for the partitions of ``options``; see ``SlurmOptions``.

    Raise BadRequestError if an option is missing, unknown or malformed. No command is run yet.
    """
    parsed = SlurmOptions.parse(options)
    return SlurmProvider(clock, parsed, open_access(parsed))
