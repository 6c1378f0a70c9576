"""Questions to Slurm and orders to it by slurmrestd, for sites without a shell on the cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from costopt.domain.errors import ProviderError
from costopt_slurm.queries import GONE
from costopt_slurm.records import (
    BatchJob,
    ClusterSettings,
    NodeLoad,
    PartitionNode,
    PartitionState,
    ReservedTime,
)
from costopt_slurm.rest_client import TYPED_SINCE, RestClient
from costopt_slurm.rest_format import (
    parse_account,
    parse_job,
    parse_load,
    parse_node,
    parse_partition,
    parse_reservation,
    parse_rows,
)

SLASH_SINCE = 40
"""From this version on (Slurm 23.11) a GRES is gres/gpu:1, before it is gres:gpu:1."""
PATH = "/usr/local/bin:/usr/bin:/bin"
NAMES = {
    "job-name": "name", "time": "time_limit", "mem": "memory_per_node", "output": "standard_output",
    "constraint": "constraints", "chdir": "current_working_directory",
    "ntasks-per-node": "tasks_per_node",
}  # fmt: skip
"""What sbatch's options are called where they are not called the same. The form before 23.02 was
found by trial on 22.05, which ignores "requeue" and lists of node counts; that since is in the
schemas that 23.02 to 25.11 publish."""


COUNTS = ("tasks_per_node", "cpus_per_task")


class SlurmRest:
    """Each method of ``SlurmQueries``. All raise ProviderError.

    Files are read where the shared folder is mounted here, too: slurmrestd shows none.
    """

    runner = None

    def __init__(self, client: RestClient) -> None:
        self._client = client

    @property
    def where(self) -> str:
        """Return the server and its API, for messages."""
        return f"{self._client.address}, API 0.0.{self._client.api}"

    def settings(self) -> ClusterSettings:
        """Return what the answer to a ping says: of the configuration it shows nothing."""
        meta = self._client.get("ping").get("meta", {})
        slurm = meta.get("slurm") or meta.get("Slurm") or {}
        return ClusterSettings(
            version=slurm.get("release", ""),
            name=slurm.get("cluster", ""),
            preempt_type=None,
            min_job_age_s=None,
            accounting=self._client.has_accounts(),
            proctrack=None,
        )

    def partitions(self) -> Mapping[str, PartitionState]:
        """Return all partitions by name."""
        found = parse_rows(self._client.get("partitions"), "partitions", parse_partition)
        return {each.name: each for each in found}

    def nodes(self) -> tuple[PartitionNode, ...]:
        """Return every node, once for each of its partitions."""
        found = parse_rows(self._client.get("nodes"), "nodes", parse_node)
        return tuple(chain.from_iterable(found))

    def loads(self, partition: str) -> Mapping[str, NodeLoad]:
        """Return what jobs hold of each node of a partition, by node."""
        rows = self._client.get("nodes")["nodes"]
        own = [row for row in rows if partition in row["partitions"]]
        return dict(parse_rows({"nodes": own}, "nodes", parse_load))

    def reservations(self) -> tuple[ReservedTime, ...]:
        """Return the reservations that have not ended."""
        response = self._client.get("reservations")
        found = parse_rows(response, "reservations", parse_reservation)
        return tuple(each for each in found if each is not None)

    def jobs(self) -> tuple[BatchJob, ...]:
        """Return the user's jobs of the queue; ended ones until Slurm forgets them."""
        rows = self._client.get("jobs")["jobs"]
        own = [row for row in rows if row["user_name"] == self._client.user]
        return parse_rows({"jobs": own}, "jobs", parse_job)

    def ended_jobs(self, job_ids: Collection[int]) -> tuple[BatchJob, ...]:
        """Return what the accounts say of jobs that the queue has forgotten."""
        results = [self._client.get(f"job/{each}", "slurmdb") for each in sorted(job_ids)]
        return tuple(job for each in results for job in parse_rows(each, "jobs", parse_account))

    def named_jobs(self, name: str, since: datetime) -> tuple[BatchJob, ...]:
        """Return what the accounts say of jobs of this name."""
        query = {"job_name": name, "start_time": f"{since:%Y-%m-%d}"}
        return parse_rows(self._client.get("jobs", "slurmdb", **query), "jobs", parse_account)

    def submit(self, script: str, options: Collection[str]) -> int:
        """Submit a batch script with options of sbatch; return the job's id."""
        job = job_properties(options, self._client.api)
        response = self._client.send("POST", "job/submit", {"script": script, "job": job})
        return parse_rows({"jobs": [response]}, "jobs", lambda row: int(row["job_id"]))[0]

    def set_comment(self, job_id: int, comment: str) -> None:
        """Replace the job's comment."""
        self._client.send("POST", f"job/{job_id}", {"comment": comment})

    def steps(self, job_id: int) -> Mapping[str, str]:  # noqa: ARG002
        """Return nothing: a step cannot be cancelled; to name one cancels the whole job."""
        return {}

    def cancel(self, what: str) -> None:
        """Cancel a job; one that is gone is not an error."""
        try:
            self._client.send("DELETE", f"job/{what}")
        except ProviderError as error:
            if not GONE.search(error.message):
                raise

    def read_file(self, path: str) -> str | None:
        """Return a small file of the shared folder, None where it is not reached from here."""
        try:
            return Path(path).read_text(encoding="utf-8")
        except OSError:
            return None


def job_properties(options: Collection[str], api: int) -> Mapping[str, Any]:
    """Return what sbatch's long options are in version 0.0.``api`` of the API."""
    given = dict(option.removeprefix("--").partition("=")[::2] for option in options)
    job: dict[str, Any] = {
        NAMES.get(name, name.replace("-", "_")): value or True for name, value in given.items()
    }
    is_exclusive = job.pop("exclusive", False)
    if api < TYPED_SINCE:
        exclusive = {"exclusive": "exclusive"} if is_exclusive else {}
        return job | exclusive | {"environment": {"PATH": PATH}}
    signal, _, lead_s = job.pop("signal").partition("@")
    if is_exclusive:
        job["shared"] = ["none"]
    if "nodelist" in job:
        job["required_nodes"] = [job.pop("nodelist")]
    job |= {name: int(job[name]) for name in COUNTS if name in job}
    gres, requeue = job.pop("gres"), not job.pop("no_requeue")
    return job | {
        "time_limit": _typed(job["time_limit"]),
        "memory_per_node": _typed(job["memory_per_node"].removesuffix("M")),
        "tres_per_node": f"gres{'/' if api >= SLASH_SINCE else ':'}{gres}",
        "requeue": requeue,
        "kill_warning_signal": signal,
        "kill_warning_delay": _typed(lead_s),
        "open_mode": [job["open_mode"].upper()],
        "environment": [f"PATH={PATH}"],
    }


def _typed(value: str) -> Mapping[str, Any]:
    return {"set": True, "infinite": False, "number": int(value)}
