"""Notices that the database server lost what it had committed, as after a failover to a standby
that was behind, and writes it again as far as this daemon wrote it."""

from __future__ import annotations

from costopt.daemon.loop.ledger_mark import LedgerMark
from costopt.domain.control import Registry
from costopt.ledger.base import DurableLedger


class LostCommits:
    """What is done about it before and after each tick. ``mark`` is None for databases that are
    files, which lose nothing unless they are replaced."""

    def __init__(self, registry: Registry, ledger: DurableLedger, mark: LedgerMark | None) -> None:
        self._registry = registry
        self._ledger = ledger
        self._mark = mark
        self._actions: tuple[int, int] | None = None
        self._lacks_events = False
        if mark is not None:
            ledger.observe(mark.read())

    def restore_actions(self) -> None:
        """Write the registry's lost operator actions again. Raise LedgerError."""
        self._actions = self._registry.restore_lost() or self._actions

    def restore_events(self) -> str:
        """Write the ledger's lost events again, as the leader. Return what was lost in words, ""
        if nothing was. Raise LedgerError."""
        events = self._ledger.restore_lost()
        actions, self._actions = self._actions, None
        lost = []
        if events is not None:
            lost.append(f"the events {events.first} to {events.last}")
        if actions is not None:
            lost.append(f"the operator actions {actions[0]} to {actions[1]}")
        if not lost:
            return ""
        self._lacks_events |= events is not None and not events.restored
        return f"the database lost {' and '.join(lost)}, which it had committed: " + (
            "nodes that the ledger no longer accounts for are orphans"
            if self._lacks_events
            else "this daemon wrote them again"
        )

    def end_tick(self) -> bool:
        """Note how far the ledger is; return whether nodes may be there whose events were lost, so
        that orphans are due. Raise LedgerError."""
        if self._mark is not None:
            self._mark.store(self._ledger.last_seq())
        lacks_events, self._lacks_events = self._lacks_events, False
        return lacks_events
