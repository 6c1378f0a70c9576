"""Finds orphans, nodes with our owner tag that no ledger accounts for, and releases them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from costopt.controller.orphans import orphan_reason
from costopt.daemon.shared_state import SharedState
from costopt.daemon.watch.alert_kinds import AlertKind
from costopt.domain.errors import ProviderError
from costopt.domain.fleet import Node
from costopt.domain.ports import Ledger
from costopt.ledger.job_record import JobRecord
from costopt.provider.base import Provider


class OrphanSweeper:
    """Sweeps the providers for orphans."""

    def __init__(
        self,
        providers: Iterable[Provider],
        ledger: Ledger,
        owner: str,
        grace_s: float,
        board: SharedState,
    ) -> None:
        self._providers = tuple(providers)
        self._ledger = ledger
        self._owner = owner
        self._grace = timedelta(seconds=grace_s)
        self._board = board

    def sweep(self, now: datetime, *, releases: bool, at_once: bool = False) -> tuple[str, ...]:
        """Return a description of each orphan that remains. With ``releases``, release them;
        otherwise only list them. ``at_once``: those within the grace period, too.

        Raise LedgerError, and ProviderError after the providers that respond have been swept.
        """
        grace = timedelta(0) if at_once else self._grace
        left: list[str] = []
        silent: ProviderError | None = None
        for provider in self._providers:
            try:
                left += self._sweep(provider, now, grace, releases)
            except ProviderError as error:
                silent = error
        self._board.orphans = tuple(left)
        if not left:
            self._board.settled(AlertKind.ORPHAN, "")
        if silent is not None:
            raise silent
        return self._board.orphans

    def _sweep(
        self, provider: Provider, now: datetime, grace: timedelta, releases: bool
    ) -> Iterable[str]:
        found = self._unknown(provider, now, grace)
        records = self._records({node.job for node in found})
        for node in found:
            why = orphan_reason(node, records)
            if not why:
                continue
            self._board.alert(now, AlertKind.ORPHAN, "", f"{node.node_id} in {node.pool}: {why}")
            if releases:
                provider.terminate(node.node_id)
            else:
                yield f"{node.node_id}: {why}"

    def _unknown(self, provider: Provider, now: datetime, grace: timedelta) -> list[Node]:
        """Return living nodes, older than the grace period, that the last tick did not see."""
        answered = {node.node_id for node in self._board.snapshot.nodes}
        return [
            node
            for node in provider.nodes(self._owner)
            if node.state.is_alive
            and node.node_id not in answered
            and now - node.launched_at >= grace
        ]

    def _records(self, jobs: Iterable[str]) -> Mapping[str, JobRecord]:
        """Return the records of those jobs that the ledger knows."""
        records: dict[str, JobRecord] = {}
        for job in jobs:
            for recorded in self._ledger.events(job):
                records.setdefault(job, JobRecord(job)).apply(recorded.event)
        return records
