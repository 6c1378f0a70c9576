"""Gangs close together: placement policies of Compute Engine."""

from __future__ import annotations

import pytest

from costopt.domain.errors import BadRequestError, ForbiddenError, NoCapacityError, ProviderError
from costopt.domain.market import CapacityType, Pool
from costopt_gcp.options import GcpOptions
from tests.support.gcp.account import REGION, SPOT, NewAccount
from tests.support.gcp.faults import drop_after, unauthorized

PLACEMENT_SOURCE = f"gcp {SPOT.zone} placement"


def policies(project: NewAccount) -> list[object]:
    """What the living instances were asked to be placed by."""
    items = project.cloud.instances.all.values()
    return [item["asked"].get("resourcePolicies", []) for item in items]


def test_the_nodes_of_a_gang_share_a_policy_of_their_job(project: NewAccount) -> None:
    project.provider.launch(project.request(2))
    project.provider.launch(project.request(1, "job-0002"))
    first, second, single = policies(project)
    assert first == second
    assert single == []
    ((region, name), policy) = next(iter(project.cloud.placement.all.items()))
    assert ([name], region) == (first, REGION)
    assert policy["groupPlacementPolicy"] == {"collocation": "COLLOCATED"}
    assert not project.provider.errors_by_region()


def test_a_policy_that_is_there_is_used_again(project: NewAccount) -> None:
    for node in project.provider.launch(project.request(2)):
        project.provider.terminate(node.node_id)
    project.clock.sleep(60)
    project.connect().launch(project.request(2, "job-0002"))
    assert len(project.cloud.placement.all) == 1
    assert policies(project) == [[name] for _, name in project.cloud.placement.all] * 2


def test_machines_that_cannot_be_placed_compactly_get_none(project: NewAccount) -> None:
    pool = Pool("gcp", REGION, SPOT.zone, "n1-standard-8+1xT4", CapacityType.ON_DEMAND)
    project.provider.launch(project.request(2, pool=pool))
    assert policies(project) == [[], []]


def test_a_gang_that_cannot_be_placed_compactly_is_launched_spread_and_reported(
    project: NewAccount,
) -> None:
    project.cloud.instances.compact = False
    nodes = project.provider.launch(project.request(2))
    assert project.cloud.instances.alive() == [node.node_id for node in nodes]
    assert policies(project) == [[], []]
    assert "cannot place them compactly" in project.provider.errors_by_region()[PLACEMENT_SOURCE]
    project.cloud.instances.compact = True
    project.cloud.instances.rooms.clear()
    project.provider.launch(project.request(2, "job-0002"))
    assert PLACEMENT_SOURCE not in project.provider.errors_by_region()


def test_a_required_place_is_waited_for(project: NewAccount) -> None:
    project.cloud.instances.compact = False
    provider = project.connect(compact_placement="required")
    with pytest.raises(NoCapacityError, match="compactly"):
        provider.launch(project.request(2))
    assert not project.cloud.instances.alive()
    project.cloud.instances.compact = True
    project.clock.sleep(60)
    provider.launch(project.request(2))
    assert len(project.cloud.instances.alive()) == 2
    assert all(policies(project))


def test_a_policy_that_may_not_be_made_is_required_or_reported(project: NewAccount) -> None:
    project.cloud.faults.on("resourcePolicies.insert", unauthorized, times=None)
    with pytest.raises(ForbiddenError, match=r"compute\.resourcePolicies\.create"):
        project.connect(compact_placement="required").launch(project.request(2))
    assert not project.cloud.instances.alive()
    project.provider.launch(project.request(2))
    assert (
        "compute.resourcePolicies.create" in project.provider.errors_by_region()[PLACEMENT_SOURCE]
    )
    off = project.connect(compact_placement="off")
    off.terminate(project.cloud.instances.alive()[0])
    off.launch(project.request(1, "job-0002"))
    assert not off.errors_by_region()


@pytest.mark.parametrize("call", ["instances.bulkInsert", "zoneOperations.wait"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_answers_lost_while_apart_double_nothing(project: NewAccount, call: str, nth: int) -> None:
    project.cloud.instances.compact = False
    project.cloud.faults.on(call, drop_after, nth=nth)
    for provider in (project.provider, project.connect(), project.connect()):
        try:
            nodes = provider.launch(project.request(2))
        except ProviderError:
            continue
    assert project.cloud.instances.alive() == [node.node_id for node in nodes]
    assert len(nodes) == 2


def test_policies_of_the_owner_are_left_until_their_job_is_over(project: NewAccount) -> None:
    nodes = project.provider.launch(project.request(2))
    project.cloud.placement.all[REGION, "another"] = {"name": "another", "description": "mine"}
    (left,) = project.provider.orphaned_resources("me")
    assert (left.kind, left.place, left.job) == ("placement policy", f"gcp/{REGION}", "job")
    assert left.serves_job
    assert left.usd_per_hour == 0
    assert not project.provider.orphaned_resources("you")
    with pytest.raises(BadRequestError, match="already being used"):
        project.provider.delete_resource(left)
    for node in nodes:
        project.provider.terminate(node.node_id)
    project.clock.sleep(60)
    for _ in range(2):
        project.provider.delete_resource(left)
    assert not project.provider.orphaned_resources("me")
    assert list(project.cloud.placement.all) == [(REGION, "another")]


def test_other_words_for_closeness_are_refused() -> None:
    assert GcpOptions.parse({"regions": [REGION], "compact_placement": False})
    with pytest.raises(BadRequestError, match="compact_placement"):
        GcpOptions.parse({"regions": [REGION], "compact_placement": "near"})
