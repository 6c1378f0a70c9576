"""Questions to Slurm and orders to it, by its commands, in the records of ``records``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from costopt.domain.errors import BadRequestError, ProviderError
from costopt.provider.slurm_commands import CommandRunner
from costopt_slurm.records import (
    BatchJob,
    ClusterSettings,
    NodeLoad,
    PartitionNode,
    PartitionState,
    ReservedTime,
)
from costopt_slurm.text_format import (
    known,
    parse_columns,
    parse_duration_s,
    parse_hostlist,
    parse_instant,
    parse_pairs,
    unreadable,
)

QUEUE = {
    "JobID": 20, "Name": 256, "State": 30, "Partition": 256, "NodeList": 4096, "SubmitTime": 24,
    "StartTime": 24, "EndTime": 24, "PreemptTime": 24, "TimeLimit": 24, "exit_code": 12,
    "RestartCnt": 12, "Reason": 256, "Comment": 4096,
}  # fmt: skip
"""Columns of squeue and their widths: longer values would be cut off."""
ACCOUNTS = (
    "JobIDRaw", "JobName", "State", "Partition", "NodeList", "Submit", "Start", "End", "Timelimit",
    "ExitCode", "Comment",
)  # fmt: skip
LOADS = {"NodeList": 256, "StateLong": 30, "GresUsed": 1024, "CPUsState": 40, "Memory": 20}
TAKES_JOBS = frozenset({"idle", "idle~", "mixed", "planned", "completing"})
NODES = ("host", "partition", "state", "gres", "features")
GONE = re.compile(r"invalid job id|already (completing or )?completed|invalid job step", re.I)


class SlurmQueries:
    """One method for each question or order. All raise ProviderError."""

    def __init__(self, runner: CommandRunner) -> None:
        self.runner = runner
        self.where = runner.where

    def settings(self) -> ClusterSettings:
        """Return what scontrol says of the cluster's configuration."""
        lines = self.runner.slurm("scontrol", "show", "config").splitlines()
        pairs = (line.partition("=") for line in lines if "=" in line)
        config = {key.strip(): value.strip() for key, _, value in pairs}
        return ClusterSettings(
            version=config.get("SLURM_VERSION", ""),
            name=config.get("ClusterName", ""),
            preempt_type=known(config.get("PreemptType", "")),
            min_job_age_s=parse_duration_s(config.get("MinJobAge", "")) or 0.0,
            accounting=config.get("AccountingStorageType", "").endswith("slurmdbd"),
            proctrack=config.get("ProctrackType", ""),
        )

    def partitions(self) -> Mapping[str, PartitionState]:
        """Return all partitions by name."""
        rows = map(parse_pairs, self._show("partition"))
        return {row["PartitionName"]: _partition(row) for row in rows if "PartitionName" in row}

    def nodes(self) -> tuple[PartitionNode, ...]:
        """Return every node, once for each of its partitions."""
        text = self.runner.slurm("sinfo", "--noheader", "--Node", "-o", "%N|%R|%T|%G|%f")
        return tuple(_node(row) for row in parse_columns(text, NODES))

    def loads(self, partition: str) -> Mapping[str, NodeLoad]:
        """Return what jobs hold of each node of a partition, by node."""
        columns = ",".join(f"{name}:{width}|" for name, width in LOADS.items())
        text = self.runner.slurm(
            "sinfo", "--noheader", "--Node", f"--partition={partition}", "--Format", columns
        )
        return {row["NodeList"]: _load(row) for row in parse_columns(text, tuple(LOADS))}

    def reservations(self) -> tuple[ReservedTime, ...]:
        """Return the reservations that have not ended."""
        rows = map(parse_pairs, self._show("reservation"))
        found = (_reservation(row) for row in rows if "ReservationName" in row)
        return tuple(each for each in found if each is not None)

    def jobs(self) -> tuple[BatchJob, ...]:
        """Return this user's jobs of the queue; ended ones until Slurm forgets them."""
        columns = ",".join(f"{name}:{width}|" for name, width in QUEUE.items())
        text = self.runner.slurm(
            "squeue", "--noheader", "--me", "--states=all", "--Format", columns
        )
        return tuple(_queued(row) for row in parse_columns(text, tuple(QUEUE)))

    def ended_jobs(self, job_ids: Collection[int]) -> tuple[BatchJob, ...]:
        """Return what the accounts say of jobs that the queue has forgotten."""
        which = ",".join(str(job_id) for job_id in sorted(job_ids))
        return self._accounts("--jobs", which)

    def named_jobs(self, name: str, since: datetime) -> tuple[BatchJob, ...]:
        """Return what the accounts say of jobs of this name."""
        return self._accounts("--name", name, "--starttime", f"{since:%Y-%m-%d}")

    def submit(self, script: str, options: Collection[str]) -> int:
        """Submit a batch script; return the job's id."""
        said = self.runner.slurm("sbatch", "--parsable", *options, stdin=script)
        number = said.strip().partition(";")[0]
        if not number.isdigit():
            raise unreadable("an answer to sbatch", said)
        return int(number)

    def set_comment(self, job_id: int, comment: str) -> None:
        """Replace the job's comment."""
        self.runner.slurm("scontrol", "update", f"JobId={job_id}", f"Comment={comment}")

    def steps(self, job_id: int) -> Mapping[str, str]:
        """Return the ids of the job's steps that run, by their names."""
        text = self.runner.slurm(
            "squeue", "--noheader", "--steps", "-j", str(job_id), "-o", "%i|%j"
        )
        return {row["name"]: row["step"] for row in parse_columns(text, ("step", "name"))}

    def cancel(self, what: str) -> None:
        """Cancel a job or step; one that is gone is not an error."""
        try:
            self.runner.slurm("scancel", what)
        except ProviderError as error:
            if not GONE.search(error.message):
                raise

    def read_file(self, path: str) -> str | None:
        """Return a small file of the login node, None where it does not exist."""
        try:
            return self.runner.run("cat", path)
        except BadRequestError:
            return None

    def _show(self, kind: str) -> list[str]:
        return self.runner.slurm("scontrol", "--oneliner", "show", kind).splitlines()

    def _accounts(self, *which: str) -> tuple[BatchJob, ...]:
        text = self.runner.slurm(
            "sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", *which,
            "--format", ",".join(ACCOUNTS),
        )  # fmt: skip
        return tuple(_accounted(row) for row in parse_columns(text, ACCOUNTS))


def _partition(row: Mapping[str, str]) -> PartitionState:
    return PartitionState(
        name=row["PartitionName"],
        is_up=row.get("State", "") == "UP",
        preempt_mode=row.get("PreemptMode", "OFF"),
        grace_s=float(row.get("GraceTime", "0") or 0),
        max_time_s=parse_duration_s(row.get("MaxTime", "")),
        default_time_s=parse_duration_s(row.get("DefaultTime", "")),
    )


def _node(row: Mapping[str, str]) -> PartitionNode:
    features = frozenset(known(row["features"]).split(",")) - {""}
    gres = re.sub(r"\([^)]*\)", "", known(row["gres"]))
    return PartitionNode(row["host"], row["partition"], row["state"], gres, features)


def _load(row: Mapping[str, str]) -> NodeLoad:
    used = re.findall(r"\bgpu(?::[^:,()]+)?:(\d+)", row["GresUsed"])
    _, idle, _, cpus = (int(each) for each in row["CPUsState"].split("/"))
    is_up = row["StateLong"] in TAKES_JOBS
    return NodeLoad(is_up, sum(map(int, used)), cpus, idle, int(row["Memory"]))


def _reservation(row: Mapping[str, str]) -> ReservedTime | None:
    starts_at, ends_at = parse_instant(row["StartTime"]), parse_instant(row["EndTime"])
    if starts_at is None or ends_at is None:
        return None
    hosts = frozenset(parse_hostlist(row.get("Nodes", "")))
    return ReservedTime(row["ReservationName"], starts_at, ends_at, hosts)


def _queued(row: Mapping[str, str]) -> BatchJob:
    submitted_at = parse_instant(row["SubmitTime"])
    if submitted_at is None:
        raise unreadable("a job without a time of submission", row["JobID"])
    waits = row["State"] == "PENDING"
    return BatchJob(
        job_id=_job_id(row["JobID"]),
        name=row["Name"],
        state=row["State"],
        partition=row["Partition"],
        hosts=() if waits else parse_hostlist(row["NodeList"]),
        submitted_at=submitted_at,
        started_at=None if waits else parse_instant(row["StartTime"]),
        ends_at=None if waits else parse_instant(row["EndTime"]),
        preempted_at=parse_instant(row["PreemptTime"]),
        time_limit_s=parse_duration_s(row["TimeLimit"]),
        exit_code=exit_code(row["exit_code"]),
        restarts=int(row["RestartCnt"] or 0),
        reason=known(row["Reason"]),
        comment=known(row["Comment"]),
    )


def _accounted(row: Mapping[str, str]) -> BatchJob:
    submitted_at = parse_instant(row["Submit"]) or datetime.fromtimestamp(0, UTC)
    return BatchJob(
        job_id=_job_id(row["JobIDRaw"]),
        name=row["JobName"],
        state=row["State"].partition(" ")[0],
        partition=row["Partition"],
        hosts=parse_hostlist(row["NodeList"]),
        submitted_at=submitted_at,
        started_at=parse_instant(row["Start"]),
        ends_at=parse_instant(row["End"]),
        time_limit_s=parse_duration_s(row["Timelimit"]),
        exit_code=exit_code(row["ExitCode"]),
        comment=known(row["Comment"]),
    )


def _job_id(text: str) -> int:
    """Raise ProviderUnavailableError for an id that no job of ours has, such as an array's."""
    digits = re.match(r"\d+", text)
    if digits is None:
        raise unreadable("a job id", text)
    return int(digits[0])


def exit_code(text: str) -> int:
    """Return the code of "75:0", or of a wait status such as 19200."""
    code, colon, _ = text.partition(":")
    if not code.isdigit():
        return 0
    return int(code) if colon else int(code) >> 8 if int(code) > 255 else int(code)
