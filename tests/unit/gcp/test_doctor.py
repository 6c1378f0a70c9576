"""What `costopt doctor gcp` finds in a project, over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from costopt.cli.main import cli
from costopt.provider.base import ALL_LAUNCHES, Check, CheckStatus
from tests.support.gcp.account import REGION, NewAccount
from tests.support.gcp.faults import refuse, unauthorized

STORE = "gs://runs/a"
NODES = "nodes@project-1.iam.gserviceaccount.com"


def look(project: NewAccount, store: str | None = STORE, **options: object) -> dict[str, Check]:
    given = {"regions": [REGION], "service_account": NODES, **options}
    provider = project.connect(None, **given)
    return {check.name: check for check in provider.checks("me", store)}


def broken(found: dict[str, Check]) -> list[str]:
    return [name for name, check in found.items() if check.verdict is CheckStatus.BROKEN]


def test_a_fit_project_is_found_well(project: NewAccount) -> None:
    found = look(project)
    assert not broken(found)
    assert "project-1" in found["credentials"].detail
    assert "us-central1-a, us-central1-b" in found[f"region {REGION}"].detail
    assert "L4 16" in found[f"quota {REGION}"].detail
    assert found["image"].detail.endswith("pytorch-2-9-cu129-ubuntu-2404-nvidia-580-v1")


def test_what_is_missing_is_named_with_its_remedy(project: NewAccount) -> None:
    project.cloud.place.limits = {"NVIDIA_L4_GPUS": 0, "PREEMPTIBLE_NVIDIA_L4_GPUS": 0}
    image = "projects/me/global/images/missing"
    found = look(project, "s3://runs/a", image=image, service_account=None)
    assert broken(found) == [f"quota {REGION}", "image", "store"]
    assert found["node account"].verdict is CheckStatus.MISSING
    assert "gs://" in str(found["store"].hint)
    assert "gcloud compute images list" in str(found["image"].hint)
    assert look(project, None)["store"].verdict is CheckStatus.MISSING


def test_a_region_that_is_wrong_or_refuses_does_not_hide_the_others(project: NewAccount) -> None:
    found = look(project, regions=["mars-east1", REGION])
    assert broken(found) == ["region mars-east1"]
    project.cloud.faults.on("regions.get", unauthorized, times=None)
    refused = look(project)[f"region {REGION}"]
    assert "compute.regions.get" in refused.detail
    assert "--iam-policy" in str(refused.hint)


def test_an_api_that_is_not_enabled_says_how(project: NewAccount) -> None:
    project.cloud.faults.on("regions.get", refuse("accessNotConfigured", 403), times=None)
    assert "gcloud services enable" in str(look(project)[f"region {REGION}"].hint)


def test_without_credentials_nothing_more_is_asked(
    project: NewAccount, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from costopt_gcp.clients import Clients

    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nothing.json"))
    provider = project.connect(Clients(None), regions=[REGION])
    (found,) = provider.checks("me", STORE)
    assert found.verdict is CheckStatus.BROKEN
    assert "credentials" in found.detail
    assert "gcloud auth" in str(found.hint)


def test_each_missing_permission_is_named_with_a_role_that_has_it(project: NewAccount) -> None:
    found = look(project)
    for where in ("permissions", f"permissions on {NODES}", "permissions on runs"):
        assert found[where].verdict is CheckStatus.OK
    roles = {
        "compute.instances.create": "roles/compute.instanceAdmin.v1",
        "compute.advice.capacityHistory": "roles/compute.viewer",
        "iam.serviceAccounts.actAs": "roles/iam.serviceAccountUser",
        "storage.objects.delete": "roles/storage.objectUser",
        "storage.buckets.get": "roles/storage.legacyBucketReader",
    }
    project.cloud.access.denied = set(roles)
    found = look(project)
    assert sorted(broken(found)) == [f"permission {name}" for name in sorted(roles)]
    for name, role in roles.items():
        hint = str(found[f"permission {name}"].hint)
        assert role in hint
        assert "--iam-policy" in hint


def test_only_faults_that_stop_every_launch_block_them(project: NewAccount) -> None:
    assert not {check.blocks for check in look(project).values()} - {""}
    found = look(project, service_account=None, image="projects/me/global/images/missing")
    assert {name for name, check in found.items() if check.blocks} == {"node account", "image"}
    project.cloud.access.denied = {"compute.instances.create"}
    project.cloud.place.limits = {"NVIDIA_L4_GPUS": 0, "PREEMPTIBLE_NVIDIA_L4_GPUS": 0}
    found = look(project, regions=["mars-east1", REGION])
    blocking = {name: check.blocks for name, check in found.items() if check.blocks}
    assert blocking == {
        "permission compute.instances.create": ALL_LAUNCHES,
        "region mars-east1": "mars-east1",
    }


def test_every_account_of_nodes_is_asked_about(project: NewAccount) -> None:
    own = "job@project-1.iam.gserviceaccount.com"
    found = look(project, job_service_accounts={"job": own})
    assert found["node account"].detail == f"{own}, {NODES}"
    assert {f"permissions on {own}", f"permissions on {NODES}"} <= found.keys()


def test_every_permission_has_a_role_and_is_tested_somewhere(project: NewAccount) -> None:
    (printed,) = [project.provider.access_policies("me", STORE)["daemon"]]
    assert isinstance(printed, dict)
    project.cloud.access.denied = set(printed["includedPermissions"])
    found = look(project)
    named = {name.removeprefix("permission ") for name in broken(found)}
    assert named == set(printed["includedPermissions"])
    assert len(named) < 100, "no more are tested in one call"


def test_permissions_that_cannot_be_tested_are_not_a_fault(project: NewAccount) -> None:
    for kind in ("projects", "serviceAccounts", "buckets"):
        project.cloud.faults.on(f"{kind}.testIamPermissions", unauthorized, times=None)
    project.cloud.faults.on("services.batchGet", unauthorized, times=None)
    found = look(project)
    assert not broken(found)
    for name in ("APIs", "permissions", f"permissions on {NODES}", "permissions on runs"):
        assert found[name].verdict is CheckStatus.MISSING


def test_apis_that_are_off_are_named_and_only_some_are_needed(project: NewAccount) -> None:
    assert look(project)["APIs"].verdict is CheckStatus.OK
    needed, useful = "storage.googleapis.com", "cloudbilling.googleapis.com"
    project.cloud.access.disabled = {needed, useful}
    found = look(project)
    assert broken(found) == [f"API {needed}"]
    assert found[f"API {useful}"].verdict is CheckStatus.MISSING
    assert "dated" in found[f"API {useful}"].detail
    assert str(found[f"API {useful}"].hint) == f"`gcloud services enable {useful}`"


def test_the_bucket_is_looked_at(project: NewAccount) -> None:
    found = look(project)["store"]
    assert (found.verdict, found.detail, found.hint) == (
        CheckStatus.OK,
        "runs in us-central1, not versioned",
        None,
    )
    europe = {
        "location": "EU",
        "versioning": {"enabled": True},
        "softDeletePolicy": {"retentionDurationSeconds": "604800"},
    }
    project.cloud.access.buckets["runs"] = europe
    found = look(project)["store"]
    assert found.detail == "runs in eu, versioned"
    for advice in ("in eu: what they save crosses", "lifecycle", "7 days", "uniform access"):
        assert advice in str(found.hint)
    absent = look(project, "gs://nothing/a")["store"]
    assert absent.verdict is CheckStatus.BROKEN
    assert "nothing" in absent.detail
    project.cloud.faults.on("buckets.get", unauthorized)
    assert look(project)["store"].verdict is CheckStatus.MISSING


@pytest.mark.parametrize(
    ("condition", "enough"),
    [
        ({"daysSinceNoncurrentTime": 3}, True),
        ({"numNewerVersions": 1, "isLive": False}, True),
        ({"age": 3}, False),
        ({"daysSinceNoncurrentTime": 3, "matchesPrefix": ["elsewhere/"]}, False),
    ],
)
def test_old_versions_that_a_lifecycle_rule_ends_need_no_other(
    project: NewAccount, condition: dict[str, object], enough: bool
) -> None:
    rules = [{"action": {"type": "Delete"}, "condition": condition}]
    project.cloud.access.buckets["runs"] = {
        "location": "EU",
        "versioning": {"enabled": True},
        "lifecycle": {"rule": rules},
    }
    assert ("lifecycle" not in str(look(project)["store"].hint)) == enough


@pytest.fixture
def account_file(project: NewAccount, tmp_path: Path) -> Path:
    path = tmp_path / "account.yaml"
    path.write_text(
        f"owner: team\nstore: {STORE}\nproviders:\n  gcp:\n    regions: [{REGION}]\n"
        f"    project: project-1\n    endpoint: {project.cloud.endpoint}\n"
        f"    service_account: {NODES}\n"
    )
    return path


def test_the_command_tells_and_exits_by_what_it_found(
    project: NewAccount, account_file: Path
) -> None:
    asked = ["doctor", "gcp", "--account", str(account_file), "-o", "json"]
    done = CliRunner().invoke(cli, asked)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert {"credentials", "image", "store"} <= {row["check"] for row in rows}
    project.cloud.faults.on("images.get", unauthorized, times=None)
    assert CliRunner().invoke(cli, asked).exit_code == 1


def test_the_command_prints_roles_without_asking_anything(
    project: NewAccount, account_file: Path
) -> None:
    before = sum(project.cloud.faults.calls.values())
    done = CliRunner().invoke(
        cli, ["doctor", "gcp", "--iam-policy", "--account", str(account_file)]
    )
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert "compute.instances.create" in printed["daemon"]["includedPermissions"]
    assert "runs" in printed["node"]["description"]
    assert set(printed["daemon-condition"]) == {"title", "description", "expression"}
    assert not [p for p in printed["node"]["includedPermissions"] if p.startswith("compute")]
    assert sum(project.cloud.faults.calls.values()) == before
