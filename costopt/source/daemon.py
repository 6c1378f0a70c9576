"""Runs as a daemon answers them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from costopt.api.ledgers import JobRun
from costopt.client.client import DaemonClient
from costopt.domain.account import Account
from costopt.domain.ports import AnyEvent, RecordedEvent
from costopt.ledger.codec import SCHEMA_VERSION, decode
from costopt.ledger.job_query import ENDED, JobQuery, JobRow
from costopt.ledger.summary import JobSummary, parse_figures
from costopt.protocol.node_logs import LogChunk
from costopt.source.base import JobLogState

PAGE = 1000


@dataclass(frozen=True)
class DaemonSource:
    """A daemon, of which a caller sees what its token allows.

    Methods raise ApiError and DaemonUnreachableError.
    """

    client: DaemonClient
    address: str

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of: object) -> None:
        pass

    @property
    def name(self) -> str:
        """Return which source it is, in words."""
        return f"the daemon at {self.address}"

    def jobs(self) -> tuple[str, ...]:
        """Return the names of the jobs that the caller may see, in the order of submission."""
        rows = self.client.get_all("jobs", rows="jobs", state="all")
        return tuple(row["submission"]["name"] for row in rows)

    def rows(self, query: JobQuery) -> tuple[JobRow, ...]:
        """Return the jobs that the caller may see, in the order of submission."""
        since = None if query.since is None else query.since.isoformat()
        answers = self.client.get_all(
            "jobs", rows="jobs", state=query.state.value, tenant=query.tenant,
            name=query.name or None, since=since,
        )  # fmt: skip
        return tuple(_row(answer) for answer in answers)

    def row(self, name: str) -> JobRow:
        """Return a job as of the daemon's last tick."""
        return _row(self.client.get("jobs", name))

    def occurrences(self) -> Sequence[Mapping[str, Any]]:
        """Return the next occurrences of recurring jobs, as the API answers them."""
        found: Sequence[Mapping[str, Any]] = self.client.get("occurrences")["occurrences"]
        return found

    def job(self, name: str) -> JobRun:
        """Return a job, whose present is that of the daemon's last tick."""
        now = datetime.fromisoformat(self.client.get("jobs", name)["summary"]["now"])
        return JobRun(name, _DaemonEvents(self.client), lambda last_at: max(last_at, now))

    def events(self, *, after: int = 0) -> Iterator[RecordedEvent]:
        """Yield the events of all jobs. Raise LedgerError for those of a newer version."""
        return _DaemonEvents(self.client).events(after=after)

    def logs(self, job: str, account: Account | None) -> DaemonLogs:  # noqa: ARG002 - its own
        """Return the logs as the daemon reads them."""
        return DaemonLogs(self.client, job)


def _row(answer: Mapping[str, Any]) -> JobRow:
    row = {**answer, "summary": JobSummary(**parse_figures(answer["summary"]))}
    if forecast := answer.get("forecast"):
        made_at = datetime.fromisoformat(forecast["made_at"])
        row["forecast"] = {**forecast, "made_at": made_at}
    return row


@dataclass(frozen=True)
class _DaemonEvents:
    """The events of a daemon's ledger, page by page."""

    client: DaemonClient

    def events(self, job: str | None = None, after: int = 0) -> Iterator[RecordedEvent]:
        """Yield events in order, of one job or of all."""
        path = ("events",) if job is None else ("jobs", job, "events")
        while True:
            page = self.client.get(*path, after=after, limit=PAGE)["events"]
            for each in page:
                text = json.dumps({"v": SCHEMA_VERSION, **each["event"]})
                yield RecordedEvent(each["seq"], decode(text))
            if len(page) < PAGE:
                return
            after = page[-1]["seq"]

    def newest(self, kind: type[AnyEvent], job: str) -> Iterator[tuple[int, AnyEvent]]:
        """Yield the job's events of a kind, newest first."""
        found = [(r.seq, r.event) for r in self.events(job) if isinstance(r.event, kind)]
        return reversed(found)


@dataclass(frozen=True)
class DaemonLogs:
    """Logs of the nodes of a daemon's job."""

    client: DaemonClient
    job: str

    def read(self, node: str | None, after: int) -> LogChunk:
        """Return it from the daemon."""
        answer = self.client.get("jobs", self.job, "logs", node=node, after=after)
        return LogChunk(
            self.job, answer["node_id"], answer["text"], answer["next_byte"], answer["ended"]
        )

    def read_task(self, task: int) -> str:
        """Return it from the daemon."""
        return str(self.client.get("jobs", self.job, "tasks", str(task), "log")["text"])

    def state(self) -> JobLogState:
        """Return it from the daemon."""
        detail = self.client.get("jobs", self.job)
        nodes = tuple(node["node_id"] for node in detail["nodes"])
        state = str(detail["summary"]["state"])
        cancelled = detail["submission"]["desired_state"] == "cancelled" and not nodes
        over = state if state in ENDED else "cancelled" if cancelled else ""
        return JobLogState(nodes, over)
