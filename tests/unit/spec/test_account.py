"""Account files: what they mean, and what is refused where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from costopt.controller.account_site import connect_account
from costopt.domain.account import Account, Quota, Tenant
from costopt.domain.market import CapacityType
from costopt.engine.loop import WallClock
from costopt.spec import SpecFileError, SpecProblem, account_schema, detect_kind, load_account
from costopt.spec.yaml_document import read_document

EXAMPLE = Path(__file__).parents[3] / "examples" / "planning" / "account.yaml"


def load(tmp_path: Path, text: str) -> Account:
    path = tmp_path / "account.yaml"
    path.write_text(text)
    return load_account(path)


def refusal(tmp_path: Path, text: str) -> tuple[SpecProblem, ...]:
    with pytest.raises(SpecFileError) as caught:
        load(tmp_path, text)
    return caught.value.problems


def assert_problem(problem: SpecProblem, expected: tuple[Any, ...]) -> None:
    """Its line, column, field and code, and a name that its message suggests, if any."""
    found = (problem.line, problem.column, problem.field, problem.code)
    assert found == expected[:4]
    assert all(near in problem.message for near in expected[4:])


def test_the_example_is_read_as_it_stands() -> None:
    account = load_account(EXAMPLE)
    spot, h100 = account.quotas
    assert spot == Quota(
        "p5-spot-vcpus",
        provider="aws",
        region="us-east-1",
        families=("p",),
        capacity_type=CapacityType.SPOT,
        max_vcpus=768,
    )
    assert h100 == Quota("h100", gpu_model="H100", max_gpus=64)
    assert account.tenants == {
        "research": Tenant("research", 2.0, max_usd_per_hour=400.0),
        "product": Tenant("product", 1.0, max_usd=20000.0, max_nodes=8),
    }


def test_an_account_may_say_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, "kind: account\n") == Account()


@pytest.mark.parametrize("text", ["kind: account\n", "tenants: []\n", "quotas: []\nname: x\n"])
def test_an_account_is_reported_from_its_kind_or_its_keys(tmp_path: Path, text: str) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(text)
    assert detect_kind(read_document(str(path))) == "account"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("quotas: [{name: a}]", (1, 10, "quotas[0]", "missing")),
        (
            "quotas: [{name: a, max_gpu: 8}]",
            (
                1,
                20,
                "quotas[0].max_gpu",
                "extra_forbidden",
                "'max_gpus'",
            ),
        ),
        ("quotas: [{name: a, max_gpus: 0}]", (1, 30, "quotas[0].max_gpus", "greater_than_equal")),
        (
            "quotas: [{name: a, gpu_model: H10, max_gpus: 8}]",
            (1, 31, "quotas[0].gpu_model", "unknown_name"),
        ),
        (
            "quotas: [{name: a, families: [p5], max_gpus: 8}]",
            (1, 31, "quotas[0].families[0]", "string_pattern_mismatch"),
        ),
        (
            "quotas: [{name: a, max_gpus: 8}, {name: a, max_nodes: 8}]",
            (1, 41, "quotas[1].name", "duplicate"),
        ),
        ("tenants: [{name: a}, {name: a}]", (1, 29, "tenants[1].name", "duplicate")),
        ("tenants: [{name: a, weight: 0}]", (1, 29, "tenants[0].weight", "greater_than")),
        (
            "tenants: [{name: research}]\nquotas: [{name: q, max_gpus: 8, tenant: reserch}]",
            (2, 41, "quotas[0].tenant", "unknown_name", "'research'"),
        ),
    ],
)
def test_a_contradiction_is_reported_with_its_place(
    tmp_path: Path, text: str, expected: tuple[Any, ...]
) -> None:
    (problem,) = refusal(tmp_path, text + "\n")
    assert_problem(problem, expected)


def test_the_example_on_aws_can_be_connected_to() -> None:
    account = load_account(EXAMPLE.parents[1] / "aws" / "account.yaml")
    assert account.store is not None
    (provider,) = connect_account(account, (), WallClock())
    assert provider.names == {"aws"}


def test_an_account_names_its_clouds_with_their_options(tmp_path: Path) -> None:
    account = load(
        tmp_path,
        "owner: team-a\nstore: s3://bucket/runs\nproviders: {aws: {regions: [us-east-1]}}\n",
    )
    assert (account.owner, account.store) == ("team-a", "s3://bucket/runs")
    assert account.providers == {"aws": {"regions": ["us-east-1"]}}


def test_the_schema_describes_every_field() -> None:
    schema = account_schema()
    assert schema["$id"] == "urn:costopt:schema:account:1"
    known = {"kind", "version", "quotas", "tenants", "owner", "store", "providers", "guards"}
    known |= {"carbon", "electricity_contracts", "prices", "discounts", "commitments", "credits"}
    assert set(schema["properties"]) == known
    for section in ("QuotaSection", "TenantSection"):
        fields = schema["$defs"][section]["properties"].values()
        assert all(field["description"] for field in fields)


def test_a_tenants_prefixes_are_places_in_object_stores(tmp_path: Path) -> None:
    text = "tenants: [{name: red, prefixes: ['s3://data/red', 'gs://data/red']}]\n"
    assert load(tmp_path, text).tenants["red"].prefixes == ("s3://data/red", "gs://data/red")


@pytest.mark.parametrize(
    ("prefix", "code"),
    [
        ("/srv/red", "unknown_scheme"),
        ("ftp://x/red", "unknown_scheme"),
        ("s3://b/../red", "invalid_key"),
        ("s3://b", "holds_account_store"),
        ("s3://b/costopt", "holds_account_store"),
    ],
)
def test_a_prefix_that_separates_no_tenants_is_refused(
    tmp_path: Path, prefix: str, code: str
) -> None:
    text = f"store: s3://b/costopt\ntenants: [{{name: red, prefixes: [s3://c, '{prefix}']}}]\n"
    (problem,) = refusal(tmp_path, text)
    assert_problem(problem, (2, 42, "tenants[0].prefixes[1]", code))


@pytest.mark.parametrize(
    ("text", "field", "near"),
    [
        ("quotas: [{name: q, region: us-esat-1, max_nodes: 1}]", "quotas[0].region", "us-east-1"),
        ("quotas: [{name: q, provider: awss, max_nodes: 1}]", "quotas[0].provider", "aws"),
        ("providers: {aws: {regions: [us-esat-1]}}", "providers.aws.regions[0]", "us-east-1"),
        ("providers: {awss: {regions: [us-east-1]}}", "providers.awss", "aws"),
    ],
)
def test_a_place_that_does_not_exist_is_refused(
    tmp_path: Path, text: str, field: str, near: str
) -> None:
    problem = refusal(tmp_path, f"owner: me\n{text}\n")[0]
    assert (problem.field, problem.code) == (field, "unknown_name")
    assert near in problem.message
