"""Runs as the ledger of a state directory holds them, with what lies beside it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from costopt.api.ledgers import JobRun, LedgerReader
from costopt.controller.node_logs import FolderLogs, LogReader, StoreLogs, logged_node
from costopt.controller.state_dir import NODES, STORE, simulation_folder
from costopt.domain.account import Account
from costopt.domain.errors import SpecError
from costopt.domain.events import DecisionMade, JobSubmitted
from costopt.domain.object_store import ObjectStore
from costopt.ledger.job_query import ENDED, JobFacts, JobQuery, JobRow
from costopt.ledger.summary import JobState, JobSummary
from costopt.protocol.node_logs import LogChunk
from costopt.source.base import JobLogState
from costopt.store import open_store
from costopt.store.folder import FileStore


class LedgerSource(LedgerReader):
    """The ledger of runs or of a daemon, which need not run."""

    @property
    def name(self) -> str:
        """Return which source it is, in words."""
        return f"the ledger in {self.place}"

    def rows(self, query: JobQuery) -> tuple[JobRow, ...]:
        """Return jobs with their progress, in the order of their first event."""
        submitted = {event.job: event for _, event in self.ledger.last_of_each(JobSubmitted)}
        rows = [_row(each, submitted.get(each.job)) for each in self.summaries()]
        return query.select(rows, _facts)

    def row(self, name: str) -> JobRow:
        """Return a job with its progress. Raise LedgerError for an unknown one."""
        run = self.job(name)
        made = next(run.ledger.newest(DecisionMade, name), None)
        nodes = [
            {"node_id": node.node_id, "pool": str(node.pool), "state": node.outcome,
             "launched_at": node.launched_at}
            for node in run.nodes() if node.ended_at is None
        ]  # fmt: skip
        decision = None if made is None else asdict(made[1])
        row = _row(run.summary(), run.account().submitted)
        return {**row, "decision": decision, "nodes": nodes}

    def logs(self, job: str, account: Account | None) -> LedgerLogs:
        """Return the logs in the folder of a simulated cloud, or in the account's store.

        Raise SpecError if neither is known, LedgerError for an unknown job.
        """
        run, store = self.job(job), self.node_store(job, account)
        folder = simulation_folder(self.state_dir, job)
        reader = StoreLogs(store) if folder is None else FolderLogs(folder / NODES, store)
        return LedgerLogs(run, reader)

    def node_store(self, job: str, account: Account | None) -> ObjectStore:
        """Return the store through which the job's nodes are reached. Raise as ``logs``."""
        self.job(job)
        folder = simulation_folder(self.state_dir, job)
        if folder is not None:
            return FileStore(folder / STORE)
        if account is None or account.store is None:
            raise SpecError(
                f"the store of job {job!r} is unknown, through which its nodes are reached",
                hint="name the account file that the run was started with, and in it a store",
                code="no_store",
            )
        return open_store(account.store)


def _row(summary: JobSummary, submitted: JobSubmitted | None) -> JobRow:
    known = {} if submitted is None else {"tenant": submitted.tenant, "submitted_at": submitted.at}
    return {"summary": summary, "submission": known}


def _facts(row: JobRow) -> JobFacts:
    summary, known = row["summary"], row["submission"]
    at, over = known.get("submitted_at"), summary.state in ENDED
    return JobFacts(summary.job, known.get("tenant"), at, summary.state, over)


@dataclass(frozen=True)
class LedgerLogs:
    """Logs of a run's nodes, which its ledger names."""

    run: JobRun
    reader: LogReader

    def read(self, node: str | None, after: int) -> LogChunk:
        """Return it from the store. Raise SpecError if the job has had no such node."""
        return self.reader.read(
            self.run.name, logged_node(self.run.ledger, self.run.name, node), after
        )

    def read_task(self, task: int) -> str:
        """Return it from the store."""
        return self.reader.read_task(self.run.name, task).text

    def state(self) -> JobLogState:
        """Return it from the ledger."""
        state = self.run.summary().state
        ended = (*ENDED, JobState.STOPPED)
        nodes = tuple(self.run.account().live_nodes())
        return JobLogState(nodes, state.value if state in ended else "")
