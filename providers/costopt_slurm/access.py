"""How the cluster is reached: by Slurm's commands, or by its REST API."""

from __future__ import annotations

from costopt.provider.slurm_commands import CommandRunner
from costopt_slurm.options import SlurmOptions
from costopt_slurm.queries import SlurmQueries
from costopt_slurm.rest_client import RestClient
from costopt_slurm.rest_queries import SlurmRest

SlurmAccess = SlurmQueries | SlurmRest


def open_access(options: SlurmOptions) -> SlurmAccess:
    """Return what the account file names; nothing is asked yet."""
    if options.rest is not None:
        client = RestClient(options.rest, options.rest_user, options.token_file, options.timeout_s)
        return SlurmRest(client)
    runner = CommandRunner(options.host, options.slurm_conf, options.bin, options.timeout_s)
    return SlurmQueries(runner)
