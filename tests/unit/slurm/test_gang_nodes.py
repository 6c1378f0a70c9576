"""How a batch job's state becomes that of nodes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from costopt.domain.errors import (
    BadRequestError,
    ForbiddenError,
    NoCapacityError,
    ProviderError,
    ProviderUnavailableError,
    QuotaExceededError,
    ThrottledError,
)
from costopt.domain.fleet import EndCause, NodeState
from costopt.provider.slurm_commands import error_of
from costopt_slurm.gang_nodes import announced_ends, gang_nodes
from costopt_slurm.gang_tags import GangTags, job_name
from costopt_slurm.records import BatchJob

T0 = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TAGS = GangTags("me", "train", "train-0001-ab", "slurm/campus/spot/h100/spot", 2, 0.5, 0.0)
RUNNING = BatchJob(
    job_id=7,
    name=job_name(TAGS.key),
    state="RUNNING",
    partition="spot",
    hosts=("n1", "n2"),
    submitted_at=T0,
    started_at=T0 + HOUR,
    ends_at=T0 + 25 * HOUR,
    time_limit_s=86_400,
    comment=TAGS.comment(),
)


def test_the_comment_says_whose_a_job_is() -> None:
    assert GangTags.of_job(RUNNING) == TAGS
    assert GangTags.of_job(replace(RUNNING, name="other")) is None
    for comment in ("", "x", "[]", '{"costopt":2}', '{"costopt":1}'):
        assert GangTags.of_job(replace(RUNNING, comment=comment)) is None


@pytest.mark.parametrize(
    ("state", "node"),
    [
        ("PENDING", NodeState.WAITING),
        ("CONFIGURING", NodeState.PENDING),
        ("RUNNING", NodeState.RUNNING),
        ("SUSPENDED", NodeState.RUNNING),
        ("COMPLETING", NodeState.STOPPING),
        ("PREEMPTED", NodeState.ENDED),
    ],
)
def test_states(state: str, node: NodeState) -> None:
    assert {each.state for each in gang_nodes(replace(RUNNING, state=state), TAGS)} == {node}


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"state": "PREEMPTED"}, EndCause.INTERRUPTED),
        ({"state": "COMPLETED", "preempted_at": T0 + 2 * HOUR}, EndCause.INTERRUPTED),
        ({"state": "NODE_FAIL"}, EndCause.INTERRUPTED),
        ({"state": "TIMEOUT"}, EndCause.INTERRUPTED),
        ({"state": "COMPLETED", "ends_at": T0 + 25 * HOUR}, EndCause.INTERRUPTED),
        ({"state": "FAILED", "exit_code": 75}, EndCause.INTERRUPTED),
        ({"state": "CANCELLED"}, EndCause.FAILED),
        ({"state": "COMPLETED"}, EndCause.FAILED),
        ({"state": "CANCELLED", "hosts": (), "started_at": None}, EndCause.NO_CAPACITY),
    ],
)
def test_causes(changes: dict[str, object], cause: EndCause) -> None:
    job = replace(RUNNING, ends_at=T0 + 3 * HOUR)
    job = replace(job, **changes)  # type: ignore[arg-type]
    nodes = gang_nodes(job, TAGS)
    assert {node.end_cause for node in nodes} == {cause}
    if cause is not EndCause.NO_CAPACITY:
        assert {node.launched_at for node in nodes} == {T0 + HOUR}
        assert {node.ended_at for node in nodes} == {job.ends_at}


def test_a_released_node_costs_until_its_gang_ends() -> None:
    tags = TAGS.with_released(1)
    assert [n.state for n in gang_nodes(RUNNING, tags)] == [NodeState.RUNNING, NodeState.STOPPING]
    ended = gang_nodes(replace(RUNNING, state="PREEMPTED", ends_at=T0 + 2 * HOUR), tags)
    assert [node.end_cause for node in ended] == [EndCause.INTERRUPTED, EndCause.RELEASED]


def test_ends_are_announced() -> None:
    assert not announced_ends(RUNNING, TAGS, 30.0, T0 + 2 * HOUR)
    preempted = replace(RUNNING, preempted_at=T0 + 2 * HOUR)
    first, _ = announced_ends(preempted, TAGS, 30.0, T0 + 2 * HOUR)
    assert first.interrupts_at == T0 + 2 * HOUR + timedelta(seconds=30)
    late = announced_ends(RUNNING, TAGS, 30.0, T0 + 25 * HOUR - timedelta(seconds=100))
    assert {notice.interrupts_at for notice in late} == {T0 + 25 * HOUR}


PREFIX = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Unable to contact slurm controller (connect failure)", ProviderUnavailableError),
        ("Socket timed out on send/recv operation", ProviderUnavailableError),
        ("Invalid partition name specified", BadRequestError),
        ("Requested node configuration is not available", BadRequestError),
        ("Requested time limit is invalid (missing or exceeds some limit)", BadRequestError),
        ("Invalid account or account/partition combination specified", ForbiddenError),
        ("Access/permission denied", ForbiddenError),
        ("User's group not permitted to use this partition", ForbiddenError),
        (
            "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
            QuotaExceededError,
        ),
        ("Required partition not available (inactive or drain)", NoCapacityError),
        ("Slurm temporarily unable to accept job, sleeping and retrying", ThrottledError),
        ("Resource temporarily unavailable", ThrottledError),
    ],
)
def test_what_errors_mean(said: str, kind: type[ProviderError]) -> None:
    assert type(error_of("sbatch", PREFIX + said)) is kind
