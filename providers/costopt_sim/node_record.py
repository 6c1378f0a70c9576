"""A node of process mode on disk, so that a later controller finds it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.market import Interruption, Pool

SCHEMA = 1
FILE = "node.json"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The node, its process and its fate.

    ``pid`` is None until the process has been started; with ``started_ticks`` (the start time in
    /proc, None where there is no /proc) it is not mistaken for a later process of the same number.
    """

    node: Node
    pid: int | None = None
    started_ticks: int | None = None
    interruption: Interruption | None = None

    @property
    def should_run(self) -> bool:
        """Whether the node has a process, where nothing went wrong."""
        return self.node.state.is_alive and self.node.state is not NodeState.WAITING

    def write(self, folder: Path) -> None:
        """Replace the record durably. Raises OSError."""
        path = folder / FILE
        temporary = path.with_suffix(".tmp")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(self._fields(), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)

    @classmethod
    def read(cls, folder: Path) -> NodeRecord | None:
        """The record, or None where there is none that can be understood."""
        try:
            fields = json.loads((folder / FILE).read_text(encoding="utf-8"))
            return _record(fields) if fields["schema"] == SCHEMA else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def ended(self, at: datetime, cause: EndCause, message: str) -> NodeRecord:
        """The same node, gone."""
        node = replace(
            self.node, state=NodeState.ENDED, ended_at=at, end_cause=cause, message=message
        )
        return replace(self, node=node, interruption=None)

    def _fields(self) -> dict[str, object]:
        node, fate = self.node, self.interruption
        return {
            "schema": SCHEMA,
            "node_id": node.node_id,
            "owner": node.owner,
            "job": node.job,
            "pool": str(node.pool),
            "key": node.key,
            "state": node.state.value,
            "launched_at": node.launched_at.isoformat(),
            "usd_per_hour": node.usd_per_hour,
            "ended_at": None if node.ended_at is None else node.ended_at.isoformat(),
            "end_cause": None if node.end_cause is None else node.end_cause.value,
            "message": node.message,
            "pid": self.pid,
            "started_ticks": self.started_ticks,
            "noticed_at": None if fate is None else fate.noticed_at.isoformat(),
            "interrupts_at": None if fate is None else fate.interrupts_at.isoformat(),
        }


def _record(fields: dict[str, str]) -> NodeRecord:
    pool = Pool.parse(fields["pool"])
    node = Node(
        node_id=fields["node_id"],
        owner=fields["owner"],
        job=fields["job"],
        pool=pool,
        key=fields["key"],
        state=NodeState(fields["state"]),
        launched_at=datetime.fromisoformat(fields["launched_at"]),
        usd_per_hour=float(fields["usd_per_hour"]),
        ended_at=_moment(fields["ended_at"]),
        end_cause=EndCause(fields["end_cause"]) if fields["end_cause"] else None,
        message=fields["message"],
    )
    noticed_at, interrupts_at = _moment(fields["noticed_at"]), _moment(fields["interrupts_at"])
    fate = None
    if noticed_at is not None and interrupts_at is not None:
        fate = Interruption(node.node_id, pool, noticed_at, interrupts_at)
    pid, ticks = fields["pid"], fields["started_ticks"]
    return NodeRecord(
        node, None if pid is None else int(pid), None if ticks is None else int(ticks), fate
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
