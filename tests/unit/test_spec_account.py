"""Account files: what they mean, and what is refused where."""

from __future__ import annotations

from pathlib import Path

import pytest

from costopt.domain.account import Account
from costopt.domain.market import CapacityType
from costopt.domain.quota import Quota
from costopt.domain.tenant import Tenant
from costopt.engine.clock import WallClock
from costopt.session.account_cloud import connect_account
from costopt.spec import SpecFileError, account_schema, detect_kind, load_account
from costopt.spec.document import read_document

EXAMPLE = Path(__file__).parents[2] / "examples" / "planning" / "account.yaml"


def load(tmp_path: Path, text: str) -> Account:
    path = tmp_path / "account.yaml"
    path.write_text(text)
    return load_account(path)


def refusal(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(SpecFileError) as caught:
        load(tmp_path, text)
    return [f"{p.field}: {p.message}" for p in caught.value.problems]


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
def test_an_account_is_told_from_its_kind_or_its_keys(tmp_path: Path, text: str) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(text)
    assert detect_kind(read_document(str(path))) == "account"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("quotas: [{name: a}]", "quotas[0]: limits nothing; give max_nodes, max_gpus"),
        ("quotas: [{name: a, max_gpu: 8}]", "quotas[0].max_gpu: unknown key; did you mean"),
        ("quotas: [{name: a, max_gpus: 0}]", "quotas[0].max_gpus: expected greater than"),
        ("quotas: [{name: a, gpu_model: H10, max_gpus: 8}]", "quotas[0].gpu_model: the GPU model"),
        ("quotas: [{name: a, families: [p5], max_gpus: 8}]", "quotas[0].families[0]: expected"),
        (
            "quotas: [{name: a, max_gpus: 8}, {name: a, max_nodes: 8}]",
            "quotas[1].name: 'a' names two quotas",
        ),
        ("tenants: [{name: a}, {name: a}]", "tenants[1].name: 'a' names two tenants"),
        ("tenants: [{name: a, weight: 0}]", "tenants[0].weight: expected greater than 0"),
        (
            "tenants: [{name: research}]\nquotas: [{name: q, max_gpus: 8, tenant: reserch}]",
            "quotas[0].tenant: 'reserch' is none of the tenants; did you mean 'research'?",
        ),
    ],
)
def test_a_contradiction_is_told_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    (told,) = refusal(tmp_path, text + "\n")
    assert told.startswith(problem)


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
    assert set(schema["properties"]) == known
    for section in ("QuotaSection", "TenantSection"):
        fields = schema["$defs"][section]["properties"].values()
        assert all(field["description"] for field in fields)


def test_a_tenants_prefixes_are_places_in_object_stores(tmp_path: Path) -> None:
    text = "tenants: [{name: red, prefixes: ['s3://data/red', 'gs://data/red']}]\n"
    assert load(tmp_path, text).tenants["red"].prefixes == ("s3://data/red", "gs://data/red")


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        ("/srv/red", "expected s3://bucket/prefix or gs://bucket/prefix, got '/srv/red'"),
        ("ftp://x/red", "'ftp://x/red' is at no known kind of store"),
        ("s3://b/../red", "'../red' is no key"),
        ("s3://b", "s3://b holds the account's store, in which other tenants' jobs lie too"),
        ("s3://b/costopt", "s3://b/costopt holds the account's store"),
    ],
)
def test_a_prefix_that_parts_nobody_is_refused(tmp_path: Path, prefix: str, said: str) -> None:
    text = f"store: s3://b/costopt\ntenants: [{{name: red, prefixes: [s3://c, '{prefix}']}}]\n"
    (problem,) = refusal(tmp_path, text)
    assert problem.startswith(f"tenants[0].prefixes[1]: {said}")
