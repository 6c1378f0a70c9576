"""`costopt daemon slurm`: ResumeProgram and SuspendProgram of a Slurm cluster with cloud nodes.

Each gang that Slurm powers up becomes one job of the daemon, made of a template: the daemon finds
its pool, launches its nodes, replaces lost ones and accounts for them. The commands keep no state:
which gangs are served is in the daemon's jobs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from costopt.cli.connection import connect, server_options
from costopt.cli.errors import print_error
from costopt.cli.jobs import read_documents, submit_job
from costopt.cli.options import complete_file, duration_s
from costopt.cli.slurm_commands import BurstGang, expand, mark_down, nodes_in_use, requested_gangs
from costopt.domain.errors import CostoptError, SpecError

if TYPE_CHECKING:
    from costopt.client.client import DaemonClient

PREFIX = "slurm-"
"""With which the names of the daemon's jobs for Slurm begin."""
NODES = "SLURM_NODES"
IDLE_S = 600.0
"""What nodes may stay beyond their job's time limit: until Slurm suspends them, and some ticks."""
POLL_INTERVAL_S = 1.0
NOT_LAUNCHED = ("waiting", "ended")


@click.group()
def slurm() -> None:
    """Power the cloud nodes of a Slurm cluster up and down."""


@slurm.command()
@click.argument("nodes")
@click.option("--template", required=True, type=click.Path(dir_okay=False, path_type=Path),
              metavar="JOB.yaml", shell_complete=complete_file,
              help="Job file of a node; name, size, work and deadline are filled in.")  # fmt: skip
@click.option("--policy", "-p", default="cheapest", metavar="NAME|FILE",
              help="Policy of gangs that have time to start again.")  # fmt: skip
@click.option("--fallback", default="on-demand", metavar="NAME|FILE",
              help="Policy of others, and where --policy brings no nodes.")  # fmt: skip
@click.option("--patience", default="1m", callback=duration_s, metavar="DURATION",
              help="How long a launch may take under each of the two.")  # fmt: skip
@server_options
def resume(
    nodes: str, template: Path, policy: str, fallback: str, patience: float, server: str,
    token_file: Path | None,
) -> None:  # fmt: skip
    """Launch NODES, as ResumeProgram of Slurm.

    Each gang becomes a job of the daemon that runs for the time limit of its Slurm job and has its
    deadline (sbatch --deadline). Where that leaves time to run the whole job once more, --policy
    chooses the capacity, else --fallback does. Nodes that cannot be launched are set DOWN with the
    reason at once, so that Slurm requeues their job.
    """
    import os

    try:
        gangs = requested_gangs(nodes, os.environ.get("SLURM_RESUME_FILE"))
        launcher = _Launcher(connect(server, token_file), server, template)
        launcher.check()
    except CostoptError as error:
        mark_down([nodes], error.message)
        raise
    first = {gang: policy if launcher.has_time_twice(gang, policy) else fallback for gang in gangs}
    missing = launcher.launch(first, patience)
    again = {gang: fallback for gang in missing if first[gang] != fallback}
    missing = {gang: why for gang, why in missing.items() if gang not in again}
    missing |= launcher.launch(again, patience)
    for gang, why in missing.items():
        print_error("error", f"{gang}: {why}")
        mark_down(gang.nodes, why)
    click.get_current_context().exit(bool(missing))


@slurm.command()
@click.argument("nodes")
@server_options
def suspend(nodes: str, server: str, token_file: Path | None) -> None:
    """Release NODES, as SuspendProgram and ResumeFailProgram of Slurm.

    A gang is released once none of its nodes is in use.
    """
    client, asked = connect(server, token_file), frozenset(expand(nodes))
    for name, gang in _served_gangs(client):
        if not asked & gang:
            continue
        used = _used(gang - asked)
        if not used:
            client.send("POST", "jobs", name, "cancel")
        now = f"stays: {used} in use" if used else f"is released: {', '.join(sorted(gang))}"
        click.echo(f"{name} {now}", err=True)


def _used(nodes: frozenset[str]) -> str:
    """Return which of the nodes are in use, with commas."""
    return ", ".join(sorted(nodes_in_use(nodes))) if nodes else ""


def _served_gangs(client: DaemonClient) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the daemon's jobs for Slurm that are not over, with their nodes by Slurm's names."""
    for job in client.get_all("jobs", rows="jobs", state="open"):
        submission = job["submission"]
        name = submission["name"]
        if not name.startswith(PREFIX) or submission["desired_state"] != "run":
            continue
        text = client.get("jobs", name, "documents")["job"]
        try:
            nodes = json.loads(text)["env"][NODES]
        except (ValueError, LookupError, TypeError):
            continue
        yield name, frozenset(nodes.split(","))


@dataclass
class _Launcher:
    """Submits gangs to the daemon, and waits for their nodes."""

    client: DaemonClient
    server: str
    template: Path

    def check(self) -> None:
        """Raise CostoptError if the daemon would launch nothing or the template is wrong."""
        mode, halt = self.client.get("mode")["mode"], self.client.get("halt")["halt"]
        if mode != "enforce":
            raise CostoptError(f"the daemon's mode is {mode}", hint="costopt daemon mode enforce")
        if halt is not None:
            raise CostoptError(f"{halt['who']} stopped all launches: {halt['reason']}")
        self._job(BurstGang(("n",)))

    def has_time_twice(self, gang: BurstGang, policy: str) -> bool:
        """Whether the whole Slurm job could run again on safe capacity after a lost first run.

        costopt does not see the job's progress, so a lost node counts as all of it.
        """
        from costopt.spec import load_policy
        from costopt.spec.fields import parse_duration_s
        from costopt.spec.moments import moment

        job = self._job(gang)
        now = datetime.now(UTC)
        startup = job.get("startup", 120.0)
        startup_s = parse_duration_s(startup) if isinstance(startup, str) else float(startup)
        left_s = (moment(str(job["deadline"]), now) - now).total_seconds()
        once_s = startup_s + job["work"]["amount"]
        needed_s = 2 * once_s + load_policy(policy).risk.reserve_s + IDLE_S
        return bool(left_s >= needed_s)

    def launch(self, policies: Mapping[BurstGang, str], patience_s: float) -> dict[BurstGang, str]:
        """Submit gangs, each under its policy. Return those without nodes, with the reason."""
        missing: dict[BurstGang, str] = {}
        jobs: dict[BurstGang, str] = {}
        served = dict(_served_gangs(self.client)) if policies else {}
        for gang, policy in policies.items():
            nodes = frozenset(gang.nodes)
            holders = {name: held - nodes for name, held in served.items() if held & nodes}
            same = next((name for name in holders if served[name] == nodes), None)
            if same is not None:
                jobs[gang] = same
                continue
            in_use = {name: used for name, others in holders.items() if (used := _used(others))}
            if in_use:  # then no other gang is released: its nodes would be lost for nothing
                which = ", ".join(f"{name} ({used} in use)" for name, used in in_use.items())
                missing[gang] = f"{which} holds some of these nodes"
                continue
            try:
                for name in holders:
                    self.client.send("POST", "jobs", name, "cancel")
                jobs[gang] = self._submit(gang, policy)
            except CostoptError as error:
                missing[gang] = error.message
        until_s = time.monotonic() + patience_s
        while jobs and time.monotonic() < until_s:
            for gang in [gang for gang, name in jobs.items() if self._has_nodes(gang, name)]:
                del jobs[gang]
            time.sleep(POLL_INTERVAL_S if jobs else 0)
        for gang, name in jobs.items():
            missing[gang] = self._why(name)
            self.client.send("POST", "jobs", name, "cancel")
        return missing

    def _submit(self, gang: BurstGang, policy: str) -> str:
        job = self._job(gang)
        text = json.dumps(job)
        body = read_documents(self.client, self.server, str(self.template), policy, text=text)
        submit_job(self.client, {**body, "anyway": False})
        return str(job["name"])

    def _job(self, gang: BurstGang) -> dict[str, Any]:
        """Return the template's values with those of the gang. Raise SpecError."""
        from costopt.spec import load_job
        from costopt.spec.yaml_document import read_document

        now = datetime.now(UTC)
        load_job(self.template, now)
        values: dict[str, Any] = dict(read_document(str(self.template)).values)
        points = (values.get("throughput") or {}).get("points") or []
        if "work" not in values or len(points) != 1 or not points[0].get("gpus"):
            raise SpecError(
                f"{self.template}: expected work, and one point of throughput with the GPUs of a "
                "node",
                code="template",
            )
        count, owner = len(gang.nodes), gang.job_id or gang.nodes[0]
        amount = gang.limit_s or values["work"]["amount"]
        point = {**points[0], "gpus": points[0]["gpus"] * count, "units_per_s": 1}
        sizes = {"min_nodes": count, "max_nodes": count}
        values |= {
            "name": f"{PREFIX}{owner}-{now:%Y%m%dT%H%M%S}",
            "work": {"amount": amount, "unit": "steps"},
            "throughput": {"points": [point]},
            "resources": {**(values.get("resources") or {}), **sizes},
            "env": {**(values.get("env") or {}), NODES: ",".join(gang.nodes)},
        }
        if gang.deadline_at is not None:
            left_s = max(1.0, (gang.deadline_at - now).total_seconds())
            values["deadline"] = f"{left_s:.0f}s"
        return values

    def _has_nodes(self, gang: BurstGang, name: str) -> bool:
        nodes = self.client.get("jobs", name)["nodes"]
        return sum(node["state"] not in NOT_LAUNCHED for node in nodes) >= len(gang.nodes)

    def _why(self, name: str) -> str:
        status = self.client.get("jobs", name)
        decision = status["decision"] or {}
        return status["blocked_by"] or decision.get("reason") or "no node was launched in time"
