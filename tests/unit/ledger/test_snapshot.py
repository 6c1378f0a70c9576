"""Folds that go on from where the last ones were kept come to the same as all events."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costopt.domain.errors import LedgerError
from costopt.domain.events import Event, ProgressReported, RunStopped
from costopt.ledger import fold_cache
from costopt.ledger.base import CachedFold, DurableLedger, open_ledger
from costopt.ledger.fold_cache import (
    ACCOUNT,
    SUMMARY,
    deserialize_fold,
    fold_code_digest,
    require_fold,
    save_folds,
    serialize_fold,
    summaries,
)
from costopt.ledger.job_account import JobAccount
from costopt.ledger.job_record import JobRecord
from tests.support.errors import has_code
from tests.support.sample_run import sample_events

LATER = timedelta(days=300)


def account(job: str, events: tuple[Event, ...]) -> JobAccount:
    made = JobAccount(job)
    for event in events:
        made.apply(event)
    return made


def record(job: str, events: tuple[Event, ...]) -> JobRecord:
    made = JobRecord(job)
    for event in events:
        made.apply(event)
    return made


def later(job: str, last_at: datetime) -> datetime:
    return last_at + LATER


@pytest.fixture
def ledger(database_place: Path | str) -> Iterator[DurableLedger]:
    with open_ledger(database_place) as opened:
        yield opened


def test_summaries_are_the_same_with_and_without_snapshots(ledger: DurableLedger) -> None:
    events = sample_events("a")
    for job, upto in (("done", None), ("running", 60), ("waiting", 3)):
        ledger.append(*(replace(event, job=job) for event in events[:upto]))
    for now_of in (lambda _, at: at, later):
        before = list(summaries(ledger, now_of))
        save_folds(ledger)
        assert list(summaries(ledger, now_of)) == before
        assert [summary.job for summary in before] == ["done", "running", "waiting"]


def test_what_is_kept_is_not_read_again(
    ledger: DurableLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.append(*sample_events("a"))
    assert require_fold(ledger, "a").fresh == len(sample_events())
    assert save_folds(ledger) == 1
    assert require_fold(ledger, "a").fresh == 0
    assert save_folds(ledger) == 0
    ledger.append(RunStopped(at=sample_events()[-1].at, job="a", reason="r"))
    assert require_fold(ledger, "a").fresh == 1
    monkeypatch.setattr(fold_cache, "require_fold", no_fold)
    with pytest.raises(AssertionError):
        list(summaries(ledger, later))


def no_fold(ledger: DurableLedger, job: str) -> None:
    raise AssertionError("the events were read")


def test_a_running_job_is_kept_once_it_has_grown(ledger: DurableLedger) -> None:
    events = sample_events("a")[:60]
    ledger.append(*events)
    assert save_folds(ledger) == 0
    at = events[-1].at
    ledger.append(
        *(
            ProgressReported(at=at + timedelta(seconds=n), job="a", done_units=n, saved_units=0.0,
                             units_per_s=1.0)
            for n in range(fold_cache.MIN_EVENTS)
        )
    )  # fmt: skip
    assert save_folds(ledger) == 1
    assert require_fold(ledger, "a").fresh == 0
    assert SUMMARY not in ledger.folds(SUMMARY)


@pytest.mark.parametrize(
    "harm",
    [
        lambda fold: replace(fold, code="other"),
        lambda fold: replace(fold, body=b"garbage"),
        lambda fold: replace(fold, body=zlib.compress(b"2026-01-01T00:00:00+00:00\n[1]")),
        lambda fold: replace(fold, body=zlib.compress(b'2026-01-01T00:00:00+00:00\n["o",99,[]]')),
    ],
)
def test_a_snapshot_of_other_code_or_none_is_folded_from_scratch(
    ledger: DurableLedger, harm: Callable[[CachedFold], CachedFold]
) -> None:
    ledger.append(*sample_events("a"))
    whole = require_fold(ledger, "a")
    save_folds(ledger)
    fold = ledger.folds(ACCOUNT)["a"]
    ledger.save_folds(ACCOUNT, {"a": harm(replace(fold, seq=fold.seq + 1))})
    known = require_fold(ledger, "a")
    assert known.fresh == len(sample_events())
    assert serialize_fold(known.account, known.record) == serialize_fold(
        whole.account, whole.record
    )


def test_an_older_snapshot_never_replaces_a_newer(ledger: DurableLedger) -> None:
    code = fold_code_digest()
    ledger.save_folds(ACCOUNT, {"a": CachedFold(7, code, b"new")})
    ledger.save_folds(ACCOUNT, {"a": CachedFold(6, code, b"old")})
    assert ledger.folds(ACCOUNT, "a") == {"a": CachedFold(7, code, b"new")}
    assert ledger.folds(ACCOUNT, "b") == {}


def test_the_code_s_digest_is_of_modules_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_cache, "files", lambda package: tmp_path)
    folds = tmp_path / "part" / "folds.py"
    folds.parent.mkdir()
    folds.write_text("1")
    code = fold_code_digest.__wrapped__()
    kept = tmp_path / "part" / "__pycache__"
    kept.mkdir()
    (kept / "folds.py").write_text("2")
    assert fold_code_digest.__wrapped__() == code
    folds.write_text("2")
    assert fold_code_digest.__wrapped__() != code


def test_only_accounts_and_records_are_thawed() -> None:
    events = sample_events("a")
    forged = json.loads(serialize_fold(account("a", events), record("a", events)))
    forged[1][0][1] = 12345
    with pytest.raises(LedgerError, check=has_code("unreadable")):
        deserialize_fold(json.dumps(forged))
    with pytest.raises(LedgerError, check=has_code("unreadable")):
        deserialize_fold('["u",[["t",0],["t",0]]]')


def test_a_job_without_events_is_not_a_job(ledger: DurableLedger) -> None:
    with pytest.raises(LedgerError, check=has_code("unknown_job")) as caught:
        require_fold(ledger, "a")
    assert caught.value.hint
    assert list(summaries(ledger, lambda job, at: datetime(2026, 1, 1, tzinfo=UTC))) == []
