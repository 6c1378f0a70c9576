"""What `costopt setup gcp` creates in an empty project and removes again, over HTTP."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from costopt.provider.base import CheckStatus
from tests.support.command_line import invoke
from tests.support.gcp.account import REGION, NewAccount
from tests.support.gcp.cloud import Cloud
from tests.support.gcp.faults import refuse, unauthorized

BUCKET = "project-1-costopt"
NODE = "costopt-node@project-1.iam.gserviceaccount.com"
DAEMON = "costopt-daemon@project-1.iam.gserviceaccount.com"


@pytest.fixture
def cloud(project: NewAccount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COSTOPT_GCP_ENDPOINT", project.cloud.endpoint)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "project-1")
    return project.cloud


def rows(*more: str, regions: str = REGION) -> list[dict[str, Any]]:
    done = invoke("setup", "gcp", "--regions", regions, *more, "-o", "json")
    assert done.exit_code == 0, done.output
    return list(json.loads(done.stdout)["rows"])


def refusal(*more: str) -> str:
    done = invoke("setup", "gcp", "--regions", REGION, *more)
    assert done.exit_code in (1, 2), done.output
    assert not isinstance(done.exception, (AssertionError, TypeError, KeyError))
    return done.stderr


def held(cloud: Cloud) -> dict[str, Any]:
    made = cloud.resources
    roles = {k: v for k, v in made.roles.items() if not v.get("deleted")}
    grants = {
        f"{where}/{each['role']}": each["members"]
        for where, policy in made.policies.items()
        for each in policy.get("bindings", ())
    }
    found = {
        "accounts": made.accounts,
        "roles": roles,
        "firewalls": made.firewalls,
        "buckets": cloud.access.buckets,
        "grants": grants,
        "objects": made.objects,
    }
    return copy.deepcopy(found)


def test_it_only_lists_without_apply(cloud: Cloud, tmp_path: Path) -> None:
    before = held(cloud)
    assert {row["state"] for row in rows()} == {"missing"}
    assert held(cloud) == before
    assert list(tmp_path.iterdir()) == []


def test_the_table_fits(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = invoke("setup", "gcp", "--regions", REGION, "--apply")
    table = done.stdout.splitlines()
    assert max(map(len, table)) <= 100
    assert any("costopt_daemon_account to costopt-daemon" in line for line in table)


def test_the_second_time_changes_nothing(cloud: Cloud, tmp_path: Path) -> None:
    assert {row["action"] for row in rows("--apply")} == {"created", "written"}
    before = held(cloud)
    again = rows("--apply")
    assert {row["state"] for row in again} == {"ready", "found"}
    assert held(cloud) == before
    document = yaml.safe_load((tmp_path / "account.yaml").read_text())
    assert document["store"] == f"gs://{BUCKET}/costopt"
    assert document["providers"]["gcp"]["service_account"] == NODE


def test_the_roles_are_those_that_doctor_prints(cloud: Cloud) -> None:
    rows("--apply")
    printed = json.loads(invoke("doctor", "gcp", "--iam-policy").stdout)
    for name, role in cloud.resources.roles.items():
        kind = name.removeprefix("costopt_").replace("_", "-")
        assert role["includedPermissions"] == printed[kind]["includedPermissions"]
    (bound,) = cloud.resources.policies["project-1"]["bindings"]
    assert bound["condition"] == printed["daemon-condition"]
    assert bound["members"] == [f"serviceAccount:{DAEMON}"]


def test_doctor_finds_the_project_fit(cloud: Cloud, project: NewAccount) -> None:
    rows("--apply")
    options = {"regions": [REGION], "service_account": NODE}
    found = list(project.connect(None, **options).checks("costopt", f"gs://{BUCKET}/costopt"))
    assert [check for check in found if check.verdict is CheckStatus.BROKEN] == []
    (store,) = (check for check in found if check.name == "store")
    assert (store.detail, store.hint) == (f"{BUCKET} in {REGION}, versioned", None)


def test_grants_of_others_stay_as_they_are(cloud: Cloud) -> None:
    theirs = {"role": "roles/owner", "members": ["user:me@example.com"]}
    cloud.resources.policies["project-1"] = {"version": 1, "etag": "7", "bindings": [theirs]}
    rows("--apply")
    assert theirs in cloud.resources.policies["project-1"]["bindings"]
    rows("--remove", "--apply")
    assert cloud.resources.policies["project-1"]["bindings"] == [theirs]


def test_a_policy_that_changed_meanwhile_is_read_again(cloud: Cloud) -> None:
    cloud.faults.on("projects.setIamPolicy", refuse("aborted", 409), times=2)
    rows("--apply")
    assert {row["state"] for row in rows()} == {"ready", "found"}


def test_an_account_that_policies_do_not_know_yet_is_waited_for(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("costopt_gcp.setup.accounts.UNKNOWN_S", 0.0)
    cloud.faults.on("projects.setIamPolicy", refuse("invalid", 400), times=2)
    rows("--apply")
    assert {row["state"] for row in rows()} == {"ready", "found"}


def test_names_of_a_long_owner_fit(cloud: Cloud, tmp_path: Path) -> None:
    (tmp_path / "account.yaml").write_text(f"owner: {'a-long-name-of-a-team.' * 2}x\n")
    rows("--apply")
    assert max(len(email.partition("@")[0]) for email in cloud.resources.accounts) <= 30
    assert max(map(len, cloud.access.buckets)) <= 63


def test_removal_leaves_the_project_as_it_was(cloud: Cloud, tmp_path: Path) -> None:
    before = held(cloud)
    rows("--apply")
    assert {row["action"] for row in rows("--remove", "--apply")} == {"removed"}
    assert held(cloud) == before
    assert not (tmp_path / "account.yaml").exists()
    assert {row["action"] for row in rows("--remove", "--apply")} == {""}
    rows("--apply")
    assert {row["state"] for row in rows()} == {"ready", "found"}, "a deleted role is undeleted"


def test_a_bucket_with_checkpoints_stays(cloud: Cloud) -> None:
    rows("--apply")
    listed = [{"name": f"costopt/checkpoints/{n}", "generation": "1"} for n in range(3)]
    cloud.resources.objects[BUCKET] = [*listed, {**listed[0], "generation": "0", "timeDeleted": ""}]
    before = held(cloud)
    assert "--delete-checkpoints" in refusal("--remove", "--apply")
    assert held(cloud) == before
    rows("--remove", "--apply", "--delete-checkpoints")
    assert BUCKET not in cloud.access.buckets


def test_a_foreign_account_is_neither_changed_nor_removed(cloud: Cloud) -> None:
    cloud.resources.accounts[NODE] = {"email": NODE, "description": "by hand"}
    before = held(cloud)
    assert "costopt-node" in refusal("--apply")
    assert held(cloud) == before
    rows("--remove", "--apply")
    assert held(cloud) == before


def test_a_bucket_of_another_project_is_named(cloud: Cloud) -> None:
    cloud.access.others.add(BUCKET)
    said = refusal("--apply")
    assert BUCKET in said
    assert "--store" in said


def test_a_missing_permission_is_named_and_the_rest_is_done_later(cloud: Cloud) -> None:
    cloud.faults.on("roles.create", unauthorized)
    said = refusal("--apply")
    assert "iam.roles.create" in said
    assert "administrator" in said
    rows("--apply")
    assert {row["state"] for row in rows()} == {"ready", "found"}


def test_a_store_of_another_cloud_is_refused(cloud: Cloud) -> None:
    assert "gs://" in refusal("--store", "s3://runs/a")
