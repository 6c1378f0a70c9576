"""What every registry owes the daemon: in a SQLite file, on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costopt.domain.control import (
    ActionKind,
    DesiredState,
    Halt,
    Mode,
    Proposal,
    ProposalState,
    Registry,
    Submission,
)
from costopt.domain.errors import SpecError
from costopt.registry.registry import open_registry
from tests.support.errors import has_code

AT = datetime(2026, 1, 1, 12, 30, 0, 250_000, tzinfo=UTC)
JOB = Submission("a", "team", 3, "name: a\n", "name: cheapest\n", "/work", AT, "ann")
PROPOSAL = Proposal("p1", "a", ActionKind.LAUNCH, "aws/eu/x/spot", 2, "cheaper", AT, None, 1.25)


@pytest.fixture
def registry(database_place: Path | str) -> Iterator[Registry]:
    with open_registry(database_place) as opened:
        yield opened


def test_jobs_come_back_as_they_were_submitted(registry: Registry) -> None:
    second = replace(JOB, name="Ünïcode 任务", job_document="name: é\u2028\n'\"\\")
    registry.submit(JOB)
    registry.submit(second)
    assert registry.submission("a") == JOB
    assert registry.submission("nobody") is None
    assert registry.submissions() == (JOB, second)


def test_occurrences_and_their_cursor_are_stored_together_or_not_at_all(registry: Registry) -> None:
    until = AT + timedelta(hours=1)
    first = replace(JOB, name="a-1", schedule="a")
    registry.submit(JOB)
    assert registry.schedule_cursor("a") is None
    registry.submit_occurrences("a", until, [first], ["late"])
    assert registry.schedule_cursor("a") == until
    assert registry.submission("a-1") == first
    assert [(c.who, c.what, c.subject, c.detail) for _, c in registry.changes(1)] == [
        ("schedule", "submit", "a-1", ""),
        ("schedule", "skip", "a", "late"),
    ]
    second = replace(JOB, name="a-2", schedule="a")
    with pytest.raises(SpecError, check=has_code("duplicate")):
        registry.submit_occurrences("a", until + timedelta(hours=1), [second, first], [])
    assert registry.submission("a-2") is None
    assert registry.schedule_cursor("a") == until


def test_jobs_are_found_by_tenant_and_intent(registry: Registry) -> None:
    for name, tenant in (("a", "red"), ("b", "blue"), ("c", "red")):
        registry.submit(replace(JOB, name=name, tenant=tenant))
    registry.set_desired_state("c", DesiredState.PAUSED, "ann", AT)
    assert [s.name for s in registry.submissions(tenant="red")] == ["a", "c"]
    assert [s.name for s in registry.submissions([DesiredState.RUN], "red")] == ["a"]
    assert registry.submissions(tenant="nobody") == ()


def test_a_name_is_taken_for_good(registry: Registry) -> None:
    registry.submit(JOB)
    registry.set_desired_state("a", DesiredState.CANCELLED, "ann", AT)
    with pytest.raises(SpecError, check=has_code("duplicate")):
        registry.submit(JOB)


def test_times_of_any_zone_are_the_same_instant(registry: Registry) -> None:
    elsewhere = AT.astimezone(datetime.strptime("+0530", "%z").tzinfo)
    registry.submit(replace(JOB, submitted_at=elsewhere))
    known = registry.submission("a")
    assert known is not None
    assert known.submitted_at == AT
    assert known.submitted_at.utcoffset() is not None


def test_the_desired_state_of_a_job_can_change(registry: Registry) -> None:
    registry.submit(JOB)
    registry.submit(replace(JOB, name="b"))
    assert (
        registry.set_desired_state("a", DesiredState.PAUSED, "ann", AT).desired_state
        is DesiredState.PAUSED
    )
    assert registry.set_priority("b", -7, "bob", AT).priority == -7
    assert [s.name for s in registry.submissions([DesiredState.PAUSED])] == ["a"]
    assert [s.name for s in registry.submissions([DesiredState.RUN, DesiredState.PAUSED])] == [
        "a",
        "b",
    ]
    registry.set_desired_state("a", DesiredState.CANCELLED, "ann", AT)
    with pytest.raises(SpecError, check=has_code("cancelled")):
        registry.set_desired_state("a", DesiredState.RUN, "ann", AT)
    with pytest.raises(SpecError, check=has_code("cancelled")):
        registry.set_priority("a", 1, "ann", AT)
    with pytest.raises(SpecError, check=has_code("unknown_job")):
        registry.set_desired_state("x", DesiredState.RUN, "ann", AT)
    with pytest.raises(SpecError, check=has_code("unknown_job")):
        registry.set_priority("x", 1, "ann", AT)


def test_a_halt_stands_for_the_newest_reason_until_it_is_lifted(registry: Registry) -> None:
    assert registry.halted() is None
    halt = registry.halt("prices look wrong", "ann", AT)
    assert registry.halt("prices look wrong", "ann", AT + timedelta(1)) == halt
    newer = registry.halt("the account is stolen", "bob", AT + timedelta(1))
    assert newer == registry.halted() == Halt("the account is stolen", "bob", AT + timedelta(1))
    registry.unhalt("ann", AT)
    registry.unhalt("ann", AT)
    assert registry.halted() is None
    assert [(c.what, c.who) for _, c in registry.changes()] == [
        ("halt", "ann"), ("halt", "bob"), ("unhalt", "ann"),
    ]  # fmt: skip


def test_the_mode_is_unknown_until_it_is_set(registry: Registry) -> None:
    assert registry.mode() is None
    for mode in Mode:
        registry.set_mode(mode, "ann", AT)
        assert registry.mode() is mode


def test_proposals_are_answered_once(registry: Registry) -> None:
    drain = replace(PROPOSAL, id="p2", kind=ActionKind.DRAIN, node_id="i-1", usd_per_hour=None)
    registry.propose(PROPOSAL)
    registry.propose(drain)
    registry.propose(replace(PROPOSAL, reason="cheaper still"))
    assert registry.proposals() == (replace(PROPOSAL, reason="cheaper still"), drain)
    later = AT + timedelta(minutes=1)
    approved = registry.answer("p1", ProposalState.APPROVED, "ann", later)
    assert (approved.state, approved.answered_by) == (ProposalState.APPROVED, "ann")
    assert approved.answered_at == later
    assert registry.proposals([ProposalState.OPEN]) == (drain,)
    assert registry.proposals([ProposalState.APPROVED]) == (approved,)
    with pytest.raises(SpecError, check=has_code("already_decided")):
        registry.answer("p1", ProposalState.REJECTED, "bob", later)
    refused = registry.answer("p1", ProposalState.REFUSED, "costopt", later, "guard halt: so")
    assert refused.outcome == "guard halt: so"
    assert registry.proposals([ProposalState.REFUSED]) == (refused,)
    with pytest.raises(SpecError, check=has_code("already_decided")):
        registry.answer("p1", ProposalState.WITHDRAWN, "costopt", later)
    with pytest.raises(SpecError, check=has_code("unknown_proposal")):
        registry.answer("p9", ProposalState.APPROVED, "ann", later)


def test_operator_actions_are_numbered_without_gaps(registry: Registry) -> None:
    registry.submit(JOB)
    with pytest.raises(SpecError):
        registry.submit(JOB)
    registry.set_priority("a", 5, "bob", AT)
    numbered = registry.changes()
    assert [number for number, _ in numbered] == [1, 2]
    assert numbered[1][1].detail == "5"
    assert registry.changes(1) == numbered[1:]


def test_threads_share_a_registry(registry: Registry) -> None:
    def submit(thread: int) -> None:
        for n in range(5):
            registry.submit(replace(JOB, name=f"{thread}-{n}"))

    threads = [threading.Thread(target=submit, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(registry.submissions()) == 20
    assert [number for number, _ in registry.changes()] == list(range(1, 21))
