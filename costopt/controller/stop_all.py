"""Ends everything that runs under an owner: every job saves, its nodes are released, and the
providers' own lists say what remains."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from costopt.controller.orphans import (
    ReconcileTarget,
    abandoned_jobs,
    account_targets,
    read_records,
    record_release,
)
from costopt.controller.state_dir import open_state_ledger
from costopt.domain.account import Account
from costopt.domain.errors import CostoptError, LedgerError, ProviderError, StoreError
from costopt.domain.fleet import Node
from costopt.domain.object_store import ObjectStore
from costopt.ledger.sql_ledger import SqlLedger
from costopt.protocol.mailbox import Mailbox
from costopt.provider.base import Capability

REQUEST = "stop"
"""In a job's folder of the state directory: its run is to save and to release its nodes."""
SAVE_S = 120.0
"""Seconds that nodes without a controller may take to save: as long as a notice of EC2's."""
POLL_S = 1.0
REASON = "costopt stop --all"


class RunStopRequest:
    """Another process asks the run of a job to end, as Ctrl-C does."""

    def __init__(self, state_dir: Path, job: str) -> None:
        self._path = state_dir / "jobs" / job / REQUEST

    def make(self) -> None:
        """Ask. Raise StoreError."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch()
        except OSError as error:
            raise StoreError(
                f"cannot write {self._path}: {error.strerror}",
                hint="end the run with Ctrl-C where it was started",
            ) from error

    def withdraw(self) -> None:
        """Forget it: a run begins, or has ended."""
        with suppress(OSError):
            self._path.unlink()

    def is_made(self) -> bool:
        """Return whether somebody asks."""
        return self._path.exists()


@dataclass(frozen=True, slots=True)
class LeftThing:
    """What could not be ended, or not be looked at, and why."""

    kind: str
    name: str
    place: str
    job: str
    why: str


class NodeStores(Protocol):
    """Where the messages of a job's nodes lie."""

    def node_store(self, job: str, account: Account | None) -> ObjectStore:
        """Return the store; raise CostoptError where it is not known."""
        ...


@dataclass(frozen=True, slots=True)
class FolderStop:
    """Ends the jobs of a state directory. Methods raise CostoptError."""

    state_dir: Path
    account: Account
    stores: NodeStores
    until_s: float
    """On the monotonic clock."""
    report: Callable[[str], None]

    def run(self) -> None:
        """Ask the runs that live to end, release the nodes of those that do not, and wait."""
        with open_state_ledger(self.state_dir) as ledger:
            names = [name for name, each in read_records([ledger]).items() if not each.over]
            with abandoned_jobs({self.state_dir: ledger}) as abandoned:
                others = (name for name in names if name not in abandoned)
                controlled = [name for name in others if _is_controlled(ledger, name)]
                for name in controlled:
                    RunStopRequest(self.state_dir, name).make()
                    self.report(f"{name}: its run saves and releases its nodes")
                if abandoned and self.account.providers:
                    with account_targets(self.account, ()) as clouds:
                        for name in sorted(abandoned):
                            self._release(name, ledger, clouds)
            self._await(controlled, ledger)

    def _release(self, name: str, ledger: SqlLedger, clouds: Collection[ReconcileTarget]) -> None:
        """Let a job without a controller save, and terminate its nodes."""
        found = {node.node_id: (cloud, node) for cloud, node in _nodes(clouds) if node.job == name}
        self.report(f"{name}: no process controls it; {len(found)} nodes save and are released")
        with suppress(CostoptError):
            self._save(Mailbox(self.stores.node_store(name, self.account), name), found)
        for cloud, node in found.values():
            try:
                cloud.provider.terminate(node.node_id)
            except ProviderError as error:
                self.report(f"{name}: {node.node_id} is not released: {error.message}")
            else:
                record_release([ledger], node, cloud.now, REASON)

    def _save(self, mailbox: Mailbox, nodes: Iterable[str]) -> None:
        waiting = set(nodes)
        for node_id in waiting:
            mailbox.request_drain(node_id)
        until_s = min(self.until_s, time.monotonic() + SAVE_S)
        while waiting and time.monotonic() < until_s:
            beats = {node_id: mailbox.heartbeat(node_id) for node_id in waiting}
            # A node that never reported trains nothing.
            waiting = {n for n, beat in beats.items() if beat and beat.state.is_training}
            if waiting:
                time.sleep(POLL_S)

    def _await(self, names: Collection[str], ledger: SqlLedger) -> None:
        waiting = list(names)
        while waiting and time.monotonic() < self.until_s:
            waiting = [name for name in waiting if _is_controlled(ledger, name)]
            if waiting:
                time.sleep(POLL_S)


def left_in_ledger(state_dir: Path) -> list[LeftThing]:
    """Return the nodes that live by the ledger. Raise LedgerError."""
    with open_state_ledger(state_dir, read_only=True) as ledger:
        return [
            LeftThing("node", node_id, str(node.pool), name, "by the ledger it lives")
            for name, record in read_records([ledger]).items()
            for node_id, node in record.live.items()
        ]


def left_with_providers(account: Account, until_s: float) -> list[LeftThing]:
    """Return what the account's providers still list with the owner's tag when time is up: nodes,
    and resources that no node uses. What does not answer is among it.

    Raise SpecError, ProviderError where none can be connected.
    """
    with account_targets(account, ()) as clouds:
        while True:
            left = [thing for cloud in clouds for thing in _left_with(cloud)]
            if not left or time.monotonic() >= until_s:
                return left
            time.sleep(POLL_S)


def _left_with(cloud: ReconcileTarget) -> Iterator[LeftThing]:
    provider = cloud.provider
    name = "+".join(sorted(provider.names))
    try:
        for node in provider.nodes(cloud.owner):
            if node.state.is_alive:
                why = f"it is {node.state.value}"
                yield LeftThing("node", node.node_id, str(node.pool), node.job, why)
        if Capability.PARTIAL_FAILURES in provider.capabilities():
            for region in sorted(provider.unreachable_regions()):
                yield LeftThing("region", region, name, "", "it does not answer")
        if Capability.ORPHANED_RESOURCES in provider.capabilities():
            for each in provider.orphaned_resources(cloud.owner):
                if not each.serves_job:
                    yield LeftThing(each.kind, each.name, each.place, each.job, "no node uses it")
    except ProviderError as error:
        yield LeftThing("provider", name, "", "", error.message)


def _nodes(clouds: Collection[ReconcileTarget]) -> Iterator[tuple[ReconcileTarget, Node]]:
    for cloud in clouds:
        with suppress(ProviderError):
            for node in cloud.provider.nodes(cloud.owner):
                if node.state.is_alive:
                    yield cloud, node


def _is_controlled(ledger: SqlLedger, job: str) -> bool:
    """Return whether another process controls the job."""
    try:
        with ledger.exclusive(job):
            return False
    except LedgerError:
        return True
