"""The commands on a daemon's jobs: submit, pause, resume, cancel and reprioritize."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from costopt.cli.connection import connect, server_options
from costopt.cli.errors import print_error
from costopt.cli.options import complete_file, duration_s, policy_option
from costopt.formatting import minute_text

if TYPE_CHECKING:
    from costopt.client.client import DaemonClient
    from costopt.controller.deployed_jobs import DeployedJob
    from costopt.domain.object_store import ObjectStore


_job = click.argument("job")


@click.command()
@_job
@server_options
def pause(job: str, server: str, token_file: Path | None) -> None:
    """Checkpoint a job, release its nodes, keep it for later."""
    connect(server, token_file).send("POST", "jobs", job, "pause")
    _say(f"{job} checkpoints, then releases its nodes; costopt resume {job} resumes it")


@click.command()
@_job
@server_options
def resume(job: str, server: str, token_file: Path | None) -> None:
    """Resume a paused or stopped job."""
    connect(server, token_file).send("POST", "jobs", job, "resume")
    _say(f"{job} resumes at the next tick")


@click.command()
@_job
@server_options
def cancel(job: str, server: str, token_file: Path | None) -> None:
    """Checkpoint a job, release its nodes, never run it again."""
    connect(server, token_file).send("POST", "jobs", job, "cancel")
    _say(f"{job} checkpoints, then releases its nodes; its checkpoints are retained")


@click.command(context_settings={"ignore_unknown_options": True})
@_job
@click.argument("priority", type=click.IntRange(-1000, 1000))
@server_options
def reprioritize(job: str, priority: int, server: str, token_file: Path | None) -> None:
    """Serve a job before or after others.

    Jobs with a higher PRIORITY are served first and may take the capacity of those with a lower
    one, which checkpoint before they yield.
    """
    answer = connect(server, token_file).send(
        "PUT", "jobs", job, "priority", body={"priority": priority}
    )  # fmt: skip
    _say(f"{job} has the priority {answer['priority']}")


def _say(what: str) -> None:
    click.echo(what, err=True)


@click.command()
@click.argument("job", metavar="[JOB.yaml]", required=False, shell_complete=complete_file)
@policy_option
@click.option(
    "--priority",
    type=click.IntRange(-1000, 1000),
    default=0,
    help="Jobs with a higher one are served first.",
)
@click.option(
    "--workdir",
    metavar="FOLDER",
    help="Folder that a job's relative paths count from, on the daemon's machine; default: the "
    "job file's folder for a daemon on this machine, else the daemon's own folder for jobs.",
)
@click.option("--anyway", is_flag=True, help="Submit even if no plan meets the deadline.")
@click.option(
    "--from-sbatch",
    is_flag=True,
    help="JOB is an sbatch script: print the job file that it becomes.",
)
@click.option("--apply", is_flag=True, help="With --from-sbatch: submit what is printed.")
@click.option(
    "--from",
    "store",
    metavar="STORE",
    help="Submit the jobs of a deployment, which the Terraform modules put into this store.",
)
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="With --from: folder in which each job gets one for its files, on the daemon's machine.",
)
@click.option(
    "--patience",
    default="0s",
    callback=duration_s,
    metavar="DURATION",
    help="How long a daemon that starts may take to answer.",
)
@server_options
def submit(
    job: str | None,
    policy: str,
    priority: int,
    workdir: str | None,
    anyway: bool,
    from_sbatch: bool,
    apply: bool,
    store: str | None,
    into: Path | None,
    patience: float,
    server: str,
    token_file: Path | None,
) -> None:
    """Submit a job to the daemon.

    The job and policy files are checked here and by the daemon, and stored as they are now. Times
    of the job that are given as durations count from its submission. The daemon plans the job alone
    on the present market: if no plan finishes it by its deadline, this exits with 3 and the binding
    constraint, as `costopt plan` does, and the job is not submitted. What the daemon does with a
    job without approval depends on its mode.

    With --from-sbatch, the job file goes to stdout and what it cannot express to stderr, each with
    its line; nothing is submitted without --apply.

    With --from, in place of JOB, every job of a deployment is submitted: what the Terraform modules
    deploy starts this beside the daemon. A job that the daemon knows is left as it is; its files
    are fetched again if they are missing. If one is refused, the others are still submitted, and
    this exits with the first refusal's code.
    """
    if (job is None) == (store is None):
        raise click.UsageError("name either a job file or, with --from, a deployment's store")
    if (into is None) != (store is None):
        raise click.UsageError("--from and --into go together")
    text = _job_of_script(job) if job and from_sbatch else None
    if from_sbatch and not apply:
        click.echo("nothing was submitted: add --apply to submit it", err=True)
        return
    client = connect(server, token_file)
    _await(client, patience)
    if store is not None and into is not None:
        click.get_current_context().exit(_submit_deployment(client, store, into.absolute()))
    assert job is not None
    documents = read_documents(client, server, job, policy, workdir, text)
    submit_job(client, {**documents, "priority": priority, "anyway": anyway})


def read_documents(
    client: DaemonClient, server: str, job: str, policy: str, workdir: str | None = None,
    text: str | None = None,
) -> dict[str, str]:  # fmt: skip
    """Return the texts of a job and its policy, checked, and the folder that its paths count from.

    ``text`` is the job's where the file ``job`` does not hold it. Raise SpecError if a file is
    wrong, and as ``connect``.
    """
    from costopt.client.client import UNIX
    from costopt.spec import load_job, load_policy
    from costopt.spec.moments import name_instants
    from costopt.spec.policy_file import bundled_policies

    now = _now(client)
    if text is None:
        for note in load_job(job, now).time_notes:
            print_error("note", note)
        text = Path(job).read_text(encoding="utf-8-sig")
    text = name_instants(text, job, now)
    chosen = policy if policy in bundled_policies() else _text(policy, load_policy)
    if workdir is None and server.startswith(UNIX):
        workdir = str(Path(job).resolve().parent)
    return {"job": text, "policy": chosen, "workdir": workdir or ""}


def _job_of_script(path: str) -> str:
    """Print the job file of an sbatch script, and what it leaves out; return its text.

    Raise SpecError.
    """
    from costopt.spec.load import parse_job
    from costopt.spec.sbatch_job import convert_script
    from costopt.spec.yaml_document import parse_document

    now = datetime.now(UTC)
    converted = convert_script(Path(path), now)
    click.echo(converted.text, nl=False)
    for line in converted.left_out:
        print_error("note", f"not in the job file: {line}")
    parse_job(parse_document(converted.text, f"{path} as a job file"), now)
    return converted.text


def submit_job(client: DaemonClient, body: Mapping[str, Any]) -> None:
    """Submit the job and print the notes on it. Raise ApiError, DaemonUnreachableError."""
    taken = client.send("POST", "jobs", body=body)
    mode, halt = client.get("mode")["mode"], client.get("halt")["halt"]
    click.echo(taken["name"])
    click.echo(f"note: {_said(taken['verdict'])}", err=True)
    click.echo(f"note: the daemon's mode is {mode}; see costopt status {taken['name']}", err=True)
    next_at = client.get("jobs", taken["name"])["next_at"]
    if next_at is not None:
        click.echo(f"note: it recurs, next at {minute_text(next_at)}", err=True)
    if halt is not None:
        click.echo(f"note: {halt['who']} stopped all launches: {halt['reason']}", err=True)


def _now(client: DaemonClient) -> datetime:
    """Return the daemon's time, which differs from the wall clock's on a recorded market."""
    ticked_at = client.get("health")["last_tick_at"]
    return datetime.now(UTC) if ticked_at is None else datetime.fromisoformat(ticked_at)


def _said(verdict: Mapping[str, Any]) -> str:
    """Return in words whether the job can meet its deadline."""
    if verdict["in_time"] is None:
        return f"the deadline was not checked: {verdict['why']}"
    if not verdict["in_time"] or verdict["finish_at"] is None:
        return verdict["why"] or "no work remains"
    finish, usd = minute_text(verdict["finish_at"]), verdict["usd"]
    source = f" ({verdict['source']})" if verdict.get("source") else ""
    return f"alone it is expected to finish by {finish} and to cost ${usd:,.2f}{source}"


def _text(path: str, check: object) -> str:
    assert callable(check)
    check(path)
    return Path(path).read_text(encoding="utf-8-sig")


RETRY_INTERVAL_S = 2.0


def _submit_deployment(client: DaemonClient, store: str, into: Path) -> int:
    """Submit the jobs of a deployment, each with its files in a folder of ``into``. Return the exit
    code of the first that was refused, or 0."""
    from costopt.controller.deployed_jobs import deployed_jobs
    from costopt.domain.errors import CostoptError
    from costopt.store import open_store

    deployed, exit_code = open_store(store), 0
    for job in deployed_jobs(deployed):
        try:
            _bring(job, deployed, into / job.name, client)
        except CostoptError as error:
            print_error("error", f"{job.name}: {error.message}", error.hint)
            exit_code = exit_code or error.exit_code
    return exit_code


def _await(client: DaemonClient, patience_s: float) -> None:
    """Return as soon as the daemon answers. Raise DaemonUnreachableError if it does not in time."""
    from costopt.client.client import DaemonUnreachableError

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
    from costopt.client.client import ApiError

    try:
        client.get("jobs", name)
    except ApiError as refusal:
        if refusal.status != 404:
            raise
        return False
    return True
