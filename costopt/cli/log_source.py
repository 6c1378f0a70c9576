"""Where ``costopt logs`` reads: a daemon, or the store and the ledger of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from costopt.controller.node_logs import StoreLogs, logged_node
from costopt.domain.errors import SpecError
from costopt.protocol.node_logs import LogChunk
from costopt.store import open_store

if TYPE_CHECKING:
    from costopt.client.client import Answer, DaemonClient
    from costopt.domain.account import Account
    from costopt.ledger.snapshot import FoldState

FINISHED = ("finished", "failed")


@dataclass(frozen=True, slots=True)
class JobLogState:
    """The living ``nodes`` of a job; how it ended, "" while it goes on."""

    nodes: tuple[str, ...]
    over: str


class LogSource(Protocol):
    """Logs of one job's nodes. Methods raise CostoptError."""

    def read(self, node: str | None, after: int) -> LogChunk:
        """What follows byte ``after`` of the node's log; without one of the newest gang's first."""
        ...

    def state(self) -> JobLogState:
        """How the job stands now."""
        ...


class DaemonLogSource:
    """A daemon's."""

    def __init__(self, client: DaemonClient, job: str) -> None:
        self._client = client
        self._job = job

    def read(self, node: str | None, after: int) -> LogChunk:
        """As the daemon tells it."""
        told = self._client.get("jobs", self._job, "logs", node=node, after=after)
        return LogChunk(self._job, told["node_id"], told["text"], told["next_byte"], told["ended"])

    def state(self) -> JobLogState:
        """As the daemon tells it."""
        detail = self._client.get("jobs", self._job)
        return JobLogState(tuple(node["node_id"] for node in detail["nodes"]), _end(detail))


class RunLogSource:
    """Those of a ``costopt run`` on the account's clouds, whose ledger is in ``state_dir``.

    Raises SpecError where the account names no store, LedgerError for an unknown job.
    """

    def __init__(self, account: Account, state_dir: Path, job: str) -> None:
        if account.store is None:
            raise SpecError(
                "the account file names no store, so its nodes keep no logs",
                hint="name the account file that the run was started with",
                code="no_store",
            )
        self._logs = StoreLogs(open_store(account.store))
        self._state_dir = state_dir
        self._job = job
        self._known: FoldState | None = None

    def read(self, node: str | None, after: int) -> LogChunk:
        """From the store. Raises SpecError where the job has had no such node."""
        from costopt.cli.ledger_view import check_known, open_existing_ledger

        with open_existing_ledger(self._state_dir) as ledger:
            check_known(ledger, self._state_dir, self._job)
            meant = logged_node(ledger, self._job, node)
        return self._logs.read(self._job, meant, after)

    def state(self) -> JobLogState:
        """As the ledger tells it."""
        from costopt.cli.ledger_view import folded_in
        from costopt.ledger.summary import JobState

        self._known, now = folded_in(self._state_dir, self._job, self._known)
        account = self._known.account
        state = account.summary(now).state
        ended = (JobState.FINISHED, JobState.FAILED, JobState.STOPPED)
        over = state.value if state in ended else ""
        return JobLogState(tuple(account.live_nodes()), over)


def _end(detail: Answer) -> str:
    state = str(detail["summary"]["state"])
    if state in FINISHED:
        return state
    cancelled = detail["submission"]["desired_state"] == "cancelled" and not detail["nodes"]
    return "cancelled" if cancelled else ""
