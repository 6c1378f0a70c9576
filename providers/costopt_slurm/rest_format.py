"""Readers of slurmrestd's JSON, in the form before Slurm 23.02 and in the one since."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from costopt_slurm.records import (
    RUNNING_STATES,
    STARTING_STATES,
    STOPPING_STATES,
    WAITING_STATES,
    BatchJob,
    NodeLoad,
    PartitionNode,
    PartitionState,
    ReservedTime,
)
from costopt_slurm.text_format import known, parse_hostlist, unreadable

Record = TypeVar("Record")
Row = Mapping[str, Any]
NO_VALUES = (-1, 0xFFFFFFFE, 0xFFFFFFFF)
"""What stands for no number, and for no limit, in the form before 23.02."""
MARKS = ("PLANNED", "COMPLETING")
TAKES_JOBS = frozenset(
    {"idle", "idle~", "mixed", *(f"{base}+{mark}" for base in ("idle", "mixed") for mark in MARKS)}
)
"""States of nodes that take another job beside those that they have."""
PLACES = frozenset({"CLOUD", "DYNAMIC_FUTURE", "DYNAMIC_NORM"})
"""Marks of a node's state that do not keep jobs from starting there."""


def parse_rows(response: Row, key: str, parse: Callable[[Row], Record]) -> tuple[Record, ...]:
    """Return what each object of a list means. Raise ProviderUnavailableError for another form."""
    try:
        return tuple(parse(row) for row in response[key])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise unreadable(f"{key} as JSON", f"{type(error).__name__}: {error}") from error


def number(value: Any) -> float | None:
    """Return a number; None where there is none, or no limit."""
    if isinstance(value, Mapping):
        return value["number"] if value["set"] and not value["infinite"] else None
    return None if value is None or value in NO_VALUES else float(value)


def exit_code(value: Any) -> int:
    """Return the exit code, 0 where a signal ended the job; before 23.11 it is a wait status."""
    if isinstance(value, Mapping) and "return_code" in value:
        return int(number(value["return_code"]) or 0)
    return int(number(value) or 0) >> 8


def parse_job(row: Row) -> BatchJob:
    """Return a job of the queue."""
    state = _state(row["job_state"])
    waits = state == "PENDING"
    return BatchJob(
        job_id=int(row["job_id"]),
        name=row["name"] or "",
        state=state,
        partition=row["partition"],
        hosts=() if waits else parse_hostlist(row["nodes"] or ""),
        submitted_at=_instant(row["submit_time"]) or datetime.fromtimestamp(0, UTC),
        started_at=None if waits else _instant(row["start_time"]),
        ends_at=None if waits else _instant(row["end_time"]),
        preempted_at=_instant(row["preempt_time"]),
        time_limit_s=_minutes_s(row["time_limit"]),
        exit_code=exit_code(row["exit_code"]),
        restarts=int(number(row["restart_cnt"]) or 0),
        reason=known(row["state_reason"] or ""),
        comment=row["comment"] or "",
    )


def parse_account(row: Row) -> BatchJob:
    """Return a job of the accounts."""
    time = row["time"]
    return parse_job(
        {
            **{key: row[key] for key in ("job_id", "name", "partition", "nodes", "exit_code")},
            "job_state": row["state"]["current"],
            "comment": row["comment"]["job"],
            "submit_time": time["submission"],
            "start_time": time["start"],
            "end_time": time["end"],
            "time_limit": time["limit"],
            "preempt_time": None,
            "restart_cnt": None,
            "state_reason": None,
        }
    )


def parse_partition(row: Row) -> PartitionState:
    """Return a partition. Since 23.02 whether it is preempted is not shown, nor its state in 23.02:
    sbatch refuses what is not up."""
    is_old = isinstance(row["nodes"], str)
    longest = row["max_time_limit"] if is_old else row["maximums"]["time"]
    default = row["default_time_limit"] if is_old else row["defaults"]["time"]
    states = row["state"] if is_old else row.get("partition", {}).get("state", ["UP"])
    grace = row.get("preemption_grace_time", 0) if is_old else row["grace_time"]
    return PartitionState(
        name=row["name"],
        is_up="UP" in states,
        preempt_mode=",".join(row["preemption_mode"]) if "preemption_mode" in row else None,
        grace_s=number(grace) or 0.0,
        max_time_s=_minutes_s(longest),
        default_time_s=_minutes_s(default),
    )


def parse_node(row: Row) -> tuple[PartitionNode, ...]:
    """Return a node, once for each of its partitions."""
    state, features = row["state"], row["features"]
    if isinstance(state, str):
        state = [state, *row["state_flags"]]
    if isinstance(features, str):
        features = features.split(",")
    base, *marks = (each.upper() for each in state)
    if set(marks) - PLACES == {"POWERED_DOWN"}:
        shown = f"{base.lower()}~"
    else:
        shown = "+".join((base.lower(), *sorted(set(marks) - PLACES)))
    gres = re.sub(r"\([^)]*\)", "", known(row["gres"] or ""))
    return tuple(
        PartitionNode(row["name"], partition, shown, gres, frozenset(features) - {""})
        for partition in row["partitions"]
    )


def parse_load(row: Row) -> tuple[str, NodeLoad]:
    """Return the name of a node and what jobs hold of it."""
    (node, *_) = parse_node(row)
    used = re.findall(r"\bgpu(?::[^:,()]+)?:(\d+)", row["gres_used"] or "")
    idle = row["idle_cpus"] if "idle_cpus" in row else row["alloc_idle_cpus"]
    is_up = node.state in TAKES_JOBS
    return node.host, NodeLoad(
        is_up, sum(map(int, used)), int(row["cpus"]), int(idle), int(row["real_memory"])
    )


def parse_reservation(row: Row) -> ReservedTime | None:
    """Return a reservation, None where its times are not known."""
    starts_at, ends_at = _instant(row["start_time"]), _instant(row["end_time"])
    if starts_at is None or ends_at is None:
        return None
    hosts = frozenset(parse_hostlist(row["node_list"] or ""))
    return ReservedTime(row["name"], starts_at, ends_at, hosts)


def _state(value: str | list[str]) -> str:
    """Return the state as squeue shows it: of its marks that which the job's nodes depend on."""
    if isinstance(value, str):
        return value
    living = WAITING_STATES | STARTING_STATES | RUNNING_STATES | STOPPING_STATES
    return next((mark for mark in value[1:] if mark in living), value[0])


def _instant(value: Any) -> datetime | None:
    seconds = number(value)
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def _minutes_s(value: Any) -> float | None:
    minutes = number(value)
    return None if minutes is None else minutes * 60.0
