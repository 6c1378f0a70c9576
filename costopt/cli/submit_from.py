"""costopt submit-from"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.failure import print_error
from costopt.cli.options import duration_s
from costopt.cli.server import connect, server_options
from costopt.cli.submit import submit_job

if TYPE_CHECKING:
    from costopt.client.client import DaemonClient
    from costopt.domain.ports import ObjectStore
    from costopt.session.deployed_jobs import DeployedJob

RETRY_INTERVAL_S = 2.0


@click.command()
@click.argument("store", metavar="STORE")
@click.option(
    "--into",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Where each job gets a folder for its files, on the daemon's machine.",
)
@click.option(
    "--patience",
    default="0s",
    callback=duration_s,
    metavar="DURATION",
    help="For how long a daemon that starts may take until it answers.",
)
@server_options
def submit_from(
    store: str, into: Path, patience: float, server: str, token_file: Path | None
) -> None:
    """Hand a daemon the jobs of a deployment.

    The Terraform modules put them into STORE (their input `jobs`), and what they deploy starts this
    beside the daemon. A job that the daemon knows is left as it is; its files are fetched again
    where they are gone. One that is refused does not keep the others out, and this ends as the
    first refusal does.
    """
    from costopt.domain.errors import CostoptError
    from costopt.session.deployed_jobs import deployed_jobs
    from costopt.store import open_store

    deployed = open_store(store)
    client = connect(server, token_file)
    _await(client, patience)
    exit_code = 0
    for job in deployed_jobs(deployed):
        try:
            _bring(job, deployed, into.absolute() / job.name, client)
        except CostoptError as error:
            print_error("error", f"{job.name}: {error.message}", error.hint)
            exit_code = exit_code or error.exit_code
    click.get_current_context().exit(exit_code)


def _await(client: DaemonClient, patience_s: float) -> None:
    """Return as soon as the daemon answers. Raises LostError where it does not in time."""
    from costopt.client.failure import DaemonUnreachableError

    until_s = time.monotonic() + patience_s
    while True:
        try:
            client.get("mode")
        except DaemonUnreachableError:
            if time.monotonic() >= until_s:
                raise
            time.sleep(RETRY_INTERVAL_S)
        else:
            return


def _bring(job: DeployedJob, store: ObjectStore, folder: Path, client: DaemonClient) -> None:
    job.fetch(store, folder)
    if not _knows(client, job.name):
        submit_job(
            client,
            {
                "job": job.document,
                "policy": job.policy,
                "workdir": str(folder),
                "priority": job.priority,
            },
        )


def _knows(client: DaemonClient, name: str) -> bool:
    from costopt.client.failure import ApiError

    try:
        client.get("jobs", name)
    except ApiError as refusal:
        if refusal.status != 404:
            raise
        return False
    return True
