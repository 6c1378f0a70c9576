"""What a new job would change for a daemon's jobs, without being submitted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from costopt.daemon.intake.impact import ImpactResult
from costopt.domain.account import Account, Quota, Tenant
from costopt.domain.errors import InfeasibleError, SpecError
from tests.support.daemon_fixtures import POLICY, DaemonScene, document

pytestmark = pytest.mark.process

OTHER_POLICY = POLICY.replace("name: plain", "name: other")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[DaemonScene]:
    tenants = {"left": Tenant("left"), "right": Tenant("right")}
    account = Account((Quota("two", max_nodes=2),), tenants)
    made = DaemonScene(tmp_path, account)
    yield made
    made.close()


def impact(
    scene: DaemonScene, hours: float = 4.0, deadline: str = "100h", tenant: str | None = None
) -> ImpactResult:
    service = scene.daemon.service
    text = document("new", "left", hours, deadline=deadline)
    read = service.read(text, POLICY, workdir=str(scene.folder), who="me")
    return service.planner.impact(read, tenant)


def test_a_job_that_fits_beside_the_others_changes_nothing(scene: DaemonScene) -> None:
    scene.submit("one", tenant="left")
    scene.go(10)
    found = impact(scene)
    one, new = found.jobs
    assert (one.job, one.served, new.is_new, new.served) == ("one", True, True, True)
    assert one.before is not None
    assert one.after is not None
    assert new.before is None
    assert one.after.usd == pytest.approx(one.before.usd, rel=0.01)
    # It has begun, and the new one has not.
    assert new.after is not None
    assert one.before.usd < new.after.usd
    assert scene.registry.submission("new") is None
    assert [each.name for each in scene.registry.submissions()] == ["one"]


def test_a_job_that_takes_what_another_needs_says_whom_and_what_would_help(
    scene: DaemonScene,
) -> None:
    scene.submit("one", "two", tenant="left", hours=6.0, deadline="9h")
    scene.go(10)
    found = impact(scene, hours=6.0, deadline="9h")
    (late,) = [each for each in found.jobs if not each.served]
    assert late.after is None
    assert "quota two" in late.why
    assert "raise quota two from 2 to 3" in late.remedies


def test_nodes_under_another_policy_keep_what_they_hold(scene: DaemonScene) -> None:
    scene.submit("one", "two", tenant="left", policy=OTHER_POLICY)
    scene.go(10)
    found = impact(scene)
    assert found.apart == 2
    (new,) = found.jobs
    assert not new.served


def test_a_tenant_sees_its_own_jobs_alone(scene: DaemonScene) -> None:
    scene.submit("mine", tenant="left", hours=6.0, deadline="9h")
    scene.submit("theirs", tenant="right", hours=6.0, deadline="9h")
    scene.go(10)
    found = impact(scene, hours=6.0, deadline="9h", tenant="left")
    assert {each.job for each in found.jobs} == {"mine", "new"}
    assert "theirs" not in repr(found)
    assert not all(each.served for each in found.jobs)


def test_what_cannot_be_planned_is_refused(scene: DaemonScene) -> None:
    with pytest.raises(InfeasibleError, match="no prices are known yet"):
        impact(scene)
    scene.submit("new", tenant="left")
    scene.go(2)
    with pytest.raises(SpecError, match="'new' runs already"):
        impact(scene)
