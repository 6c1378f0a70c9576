"""The ledger and its folds, written event by event or together."""

from __future__ import annotations

import pytest

from costopt.domain.errors import StoreError
from costopt.domain.events import RunStopped
from costopt.engine.journal import Journal
from costopt.ledger.base import MemoryLedger
from tests.support.market_fixtures import T0

STOPPED = RunStopped(at=T0, job="job", reason="told to")


def test_what_is_written_together_is_folded_at_once_and_appended_at_the_end() -> None:
    ledger = MemoryLedger()
    journal = Journal(ledger, ["job"])
    with journal.batch():
        journal.write(STOPPED)
        assert journal.accounts["job"].state.value == "stopped"
        assert len(ledger) == 0
    assert len(ledger) == 1
    journal.write(STOPPED)
    assert len(ledger) == 2


@pytest.mark.parametrize("wrong", [StoreError("no answer"), KeyboardInterrupt()])
def test_what_was_seen_before_something_went_wrong_is_kept(wrong: BaseException) -> None:
    ledger = MemoryLedger()
    journal = Journal(ledger, ["job"])

    def see_and_fail() -> None:
        with journal.batch():
            journal.write(STOPPED)
            raise wrong

    with pytest.raises(type(wrong)):
        see_and_fail()
    assert len(ledger) == 1
    journal.write(STOPPED)
    assert len(ledger) == 2
