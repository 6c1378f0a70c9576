"""What jobs cost that share the ledger with those of this engine, and that it does not control."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from costopt.domain.ports import Ledger
from costopt.engine.spending import Bill, Payer, bill, month_of
from costopt.ledger.snapshot import FoldState, load_fold


class OtherJobs:
    """Follows the jobs that ``names`` returns: runs of other processes or of former ones, and jobs
    that cannot be read any more. What is known of one that stays out is not read again."""

    def __init__(self, ledger: Ledger, names: Callable[[], Iterable[str]]) -> None:
        self._ledger = ledger
        self._names = names
        self._known: dict[str, FoldState] = {}

    def bills(self, now: datetime) -> tuple[Bill, ...]:
        """One of each that ever began, as far as the ledger goes now. Raises LedgerError."""
        folds = {
            name: load_fold(self._ledger, name, self._known.get(name)) for name in self._names()
        }
        self._known = {name: fold for name, fold in folds.items() if fold is not None}
        return tuple(_bill(fold, now) for fold in self._known.values())


def _bill(known: FoldState, now: datetime) -> Bill:
    """Until now, or the job's last event where its clock is ahead, as another replay's may be."""
    submitted = known.account.submitted
    payer = Payer(None, None) if submitted is None else Payer(submitted.tenant, submitted.policy)
    return bill(known.account, payer, month_of(now), max(now, known.last_at))
