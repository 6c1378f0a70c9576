"""An account and a record that were kept go on as if they had never been put away."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, get_type_hints

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costopt.domain.events import EVENT_TYPES, Event, NodeEnded, NodeLaunched
from costopt.engine.training import MAX_SPEED_RATIO
from costopt.ledger.fold_cache import deserialize_fold, serialize_fold
from costopt.ledger.job_account import JobAccount
from costopt.ledger.job_record import JobRecord

POOLS = st.sampled_from(["aws/r/a/t/spot", "aws/r/b/t/on_demand", "gcp/s/c/u/spot"])
NAMES = st.sampled_from(["1", "2", "3"])
TIMES = st.integers(0, 10**6).map(lambda s: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=s))
FLOATS = st.floats(0, 1e6)
RATIOS = st.floats(1 / MAX_SPEED_RATIO, MAX_SPEED_RATIO)
"""What the engine records: work over a ratio of 1e-308 would be infinite."""
TYPES: dict[Any, st.SearchStrategy[Any]] = {
    datetime: TIMES,
    float: FLOATS,
    float | None: st.none() | FLOATS,
    tuple[tuple[datetime, int], ...]: st.lists(
        st.tuples(TIMES, st.integers(0, 10**9)), min_size=1
    ).map(tuple),
}
st.register_type_strategy(datetime, TIMES)
st.register_type_strategy(float, FLOATS)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "job": st.just("job"),
    "pool": POOLS,
    "node_id": NAMES,
    "node_ids": st.lists(NAMES, unique=True).map(tuple),
    "key": NAMES,
    "nodes": st.integers(1, 3),
    "generation": st.integers(0, 3),
    "micros_per_hour": st.integers(0, 10**9),
    "interval_s": st.floats(1, 1e6),
    "speed_ratio": st.none() | st.just(0.0) | RATIOS,
}
"""Few of each, so that events speak of the same nodes."""


def kind(event_type: type[Event]) -> st.SearchStrategy[Event]:
    drawn = {
        name: FIELDS[name] if name in FIELDS else TYPES[hint]
        for name, hint in get_type_hints(event_type).items()
        if name in FIELDS or hint in TYPES
    }
    return st.builds(event_type, **drawn)


KINDS = st.sampled_from((NodeLaunched, NodeEnded)) | st.sampled_from(EVENT_TYPES)
HISTORIES = st.lists(KINDS.flatmap(kind), max_size=30)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(HISTORIES, st.integers(0, 30))
def test_a_kept_fold_goes_on_like_the_whole(events: list[Event], cut: int) -> None:
    account, record = folded(JobAccount("job"), JobRecord("job"), events)
    kept = serialize_fold(*folded(JobAccount("job"), JobRecord("job"), events[:cut]))
    account_from_start, record_from_start = folded(*deserialize_fold(kept), events[cut:])
    assert record_from_start == record
    assert serialize_fold(account_from_start, record_from_start) == serialize_fold(account, record)


def folded(
    account: JobAccount, record: JobRecord, events: list[Event]
) -> tuple[JobAccount, JobRecord]:
    for event in events:
        account.apply(event)
        record.apply(event)
    return account, record
