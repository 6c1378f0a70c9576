"""Tenants of one account: a job names its own tenant's places in object stores, or is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costopt.client.client import ApiError, DaemonClient, parse_address
from costopt.daemon.intake.admission import admit_job, check_account
from costopt.domain.account import Account, Tenant
from costopt.domain.control import Scope, Submission
from costopt.spec.yaml_document import SpecFileError
from tests.support.daemon_api import JOB
from tests.support.daemon_fixtures import POLICY, DaemonScene
from tests.support.daemon_pages import shown
from tests.support.market_fixtures import T0

TENANTS = {
    "red": Tenant("red", prefixes=("s3://data/red", "gs://data/red")),
    "blue": Tenant("blue", prefixes=("s3://data/blue",)),
    "poor": Tenant("poor"),
}
ACCOUNT = Account(tenants=TENANTS, store="s3://costopt/main")


def job(checkpoint: str, data: str = "", tenant: str = "red") -> str:
    text = JOB.format(name="llm").replace("s3://bucket/llm", checkpoint)
    return f"{text}tenant: {tenant}\n" + (f"data: {{uri: '{data}'}}\n" if data else "")


def read(text: str, account: Account = ACCOUNT) -> Submission:
    admitted = admit_job(text, "cheapest", "/srv", "me", 0, T0)
    check_account(admitted, account)
    return admitted.submission


def test_an_hour_without_its_zone_is_refused_as_the_sender_may_be_elsewhere() -> None:
    text = "\n".join(
        "deadline: Mon 9:00" if line.startswith("deadline") else line
        for line in job("s3://data/red/llm").splitlines()
    )
    with pytest.raises(SpecFileError, match="time zone is missing"):
        read(text)
    assert read(text.replace("9:00", "9:00 Europe/Berlin")).name == "llm"


@pytest.mark.parametrize(
    ("checkpoint", "data"),
    [
        ("s3://data/red/llm", "s3://data/red"),
        ("gs://data/red/llm", "/mnt/data"),
        ("s3://data/red?region=eu-west-1", ""),
        ("s3://costopt/main/checkpoints/llm", ""),
        ("saves", ""),
        ("file:///srv/saves", ""),
    ],
)
def test_a_job_names_places_of_its_tenant(checkpoint: str, data: str) -> None:
    assert read(job(checkpoint, data)).name == "llm"


@pytest.mark.parametrize(
    "place",
    [
        "s3://data/blue/llm",
        "s3://data/red-team/llm",
        "s3://data",
        "s3://data/red/../blue",
        "s3://data/%62lue/llm",
        "S3://data/blue",
        "s3://data/blue?endpoint=https://s3.us-east-1.amazonaws.com",
        "gs://data/blue",
        "s3://elsewhere/llm",
        "s3://costopt/main",
        "s3://costopt/main/checkpoints",
        "s3://costopt/main/checkpoints/other",
        "s3://costopt/main/checkpoints/llm-2",
        "s3://costopt/main/payloads/llm",
        "s3://costopt/main/jobs/other",
    ],
)
def test_a_place_of_others_is_refused_with_file_field_and_hint(place: str) -> None:
    with pytest.raises(SpecFileError) as caught:
        read(job("saves", place))
    (problem,) = caught.value.problems
    assert (problem.path, problem.line, problem.field) == ("/srv/job.yaml", 12, "data.uri")
    assert problem.code == "outside_prefixes"
    hint = str(caught.value.hint)
    assert "s3://data/red" in hint
    assert "gs://data/red" in hint
    assert "blue" not in hint


def test_every_place_of_others_is_named_at_once() -> None:
    with pytest.raises(SpecFileError) as caught:
        read(job("s3://data/blue", "s3://data/blue"))
    assert [p.field for p in caught.value.problems] == ["checkpoint.uri", "data.uri"]
    assert {p.code for p in caught.value.problems} == {"outside_prefixes"}
    assert "'s3://data/blue'" in caught.value.problems[0].message


def test_a_cache_of_others_is_refused() -> None:
    text = job("saves") + "cache: [{uri: s3://data/blue/w, to: w, size_gib: 1}]\n"
    with pytest.raises(SpecFileError) as caught:
        read(text)
    assert [p.field for p in caught.value.problems] == ["cache[0].uri"]


def test_a_tenant_that_the_account_does_not_name_is_refused() -> None:
    with pytest.raises(SpecFileError) as caught:
        read(job("saves", tenant="bleu"))
    (problem,) = caught.value.problems
    assert (problem.path, problem.field) == ("/srv/job.yaml", "tenant")
    assert problem.code == "unknown_name"
    assert "'bleu'" in problem.message
    assert not any(tenant in problem.message for tenant in ACCOUNT.tenants)


def test_a_tenant_without_prefixes_has_its_folder_in_the_store_alone() -> None:
    tenant = "poor"
    assert read(job("s3://costopt/main/checkpoints/llm", tenant=tenant)).tenant == tenant
    with pytest.raises(SpecFileError) as caught:
        read(job("s3://anywhere/llm", tenant=tenant))
    hint = caught.value.hint
    assert [p.code for p in caught.value.problems] == ["outside_prefixes"]
    assert hint is not None
    assert "prefixes:" in hint
    assert tenant in hint
    assert "red" not in hint


def test_an_account_without_tenants_separates_none() -> None:
    assert read(job("s3://anywhere/llm"), Account()).name == "llm"


def test_it_is_refused_over_http_from_any_caller(tmp_path: Path) -> None:
    with shown(tmp_path, fill=False, account=ACCOUNT) as daemon:
        for token in (daemon.token(Scope.SUBMIT, tenant="red"), daemon.token(Scope.ADMIN)):
            client = DaemonClient(parse_address(daemon.url), token)
            with pytest.raises(ApiError) as caught:
                client.send("POST", "jobs", body={"job": job("s3://data/blue/llm")})
            assert caught.value.status == 422
            assert "job.yaml:8:19: checkpoint.uri: 's3://data/blue/llm'" in caught.value.message
        body = {"job": job("saves", tenant="bleu"), "anyway": True}
        with pytest.raises(ApiError) as caught:
            client.send("POST", "jobs", body=body)
        assert caught.value.status == 422
        assert "job.yaml:11:9: tenant: 'bleu'" in caught.value.message
        taken = client.send("POST", "jobs", body={"job": job("s3://data/red/llm")})
        assert taken["name"] == "llm"


def test_no_token_is_made_for_a_tenant_that_the_account_does_not_name(tmp_path: Path) -> None:
    with shown(tmp_path, fill=False, account=ACCOUNT) as daemon:
        client = DaemonClient(parse_address(daemon.url), daemon.token(Scope.ADMIN))
        body = {"name": "ci", "scopes": ["submit"], "tenant": "bleu"}
        with pytest.raises(ApiError, match="'bleu'"):
            client.send("POST", "tokens", body=body)
        assert client.send("POST", "tokens", body=body | {"tenant": "blue"})["tenant"] == "blue"


def test_a_tenants_code_lies_in_a_folder_of_its_own(tmp_path: Path) -> None:
    """Else one tenant's job would bundle another's code and read it on its nodes."""
    with shown(tmp_path, fill=False, account=ACCOUNT) as daemon:
        (tmp_path / "red" / "code").mkdir(parents=True)
        red = DaemonClient(parse_address(daemon.url), daemon.token(Scope.SUBMIT, tenant="red"))
        poor = DaemonClient(parse_address(daemon.url), daemon.token(Scope.SUBMIT, tenant="poor"))
        for named in (tmp_path, tmp_path / "red" / "code", tmp_path / "poor" / ".." / "red"):
            body = {"job": job("saves", tenant="poor"), "workdir": str(named)}
            with pytest.raises(ApiError, match=f"workdir: .*{tmp_path}") as caught:
                poor.send("POST", "jobs", body=body)
            assert caught.value.status == 422
            assert caught.value.hint is not None
            assert f"{tmp_path}/poor" in caught.value.hint
        assert poor.send("POST", "jobs", body={"job": job("saves", tenant="poor")})["workdir"] == (
            f"{tmp_path}/poor"
        )
        body = {"job": job("saves", tenant="red").replace("llm", "own"), "workdir": ""}
        assert red.send("POST", "jobs", body=body)["workdir"] == f"{tmp_path}/red"


@pytest.mark.process
def test_what_was_taken_before_the_account_named_tenants_gets_no_new_nodes(tmp_path: Path) -> None:
    scene = DaemonScene(tmp_path)
    try:
        text = job("s3://data/blue/llm")
        admitted = admit_job(text, POLICY, str(tmp_path), "me", 0, T0)
        scene.daemon.service.submit(admitted)
        scene.account = replace(ACCOUNT, store=None)
        scene.restart()
        scene.go(3)
        assert scene.living("llm") == []
        assert "checkpoint.uri: 's3://data/blue/llm'" in scene.job("llm").blocked_by
        scene.account = Account(tenants={"blue": TENANTS["blue"]})
        scene.restart()
        scene.go(3)
        assert scene.living("llm") == []
        assert "tenant: 'red'" in scene.job("llm").blocked_by
        scene.account = Account()
        scene.restart()
        scene.go(3)
        assert len(scene.living("llm")) == 1
    finally:
        scene.close()
