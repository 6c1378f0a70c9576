"""A file's JSON Schema and its loader accept and refuse the same documents."""

from __future__ import annotations

import copy
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from costopt.spec import SpecFileError, account_schema, job_schema, policy_schema
from costopt.spec.account_file import AccountFile
from costopt.spec.fields import FileModel, parse_duration_s, parse_section
from costopt.spec.job_file import JobFile
from costopt.spec.load import parse_account, parse_job, parse_policy
from costopt.spec.moments import moment
from costopt.spec.policy_file import PolicyFile
from costopt.spec.yaml_document import Document, FieldPath, SpecProblem, parse_document

NOW = datetime(2026, 5, 1, tzinfo=UTC)

JOB: dict[str, Any] = {
    "kind": "job",
    "version": 1,
    "name": "x",
    "tenant": "team",
    "work": {"amount": 10, "unit": "steps"},
    "model": {
        "params": 7e9, "method": "lora", "tokens": 1e9, "sequence": 4096, "precision": "bf16",
        "optimizer": "adamw", "active_params": 5e9, "layers": 32, "hidden": 4096, "rank": 8,
    },
    "takes": {"per": "job", "time": "2h", "on": "4xA10G"},
    "start": "1h",
    "deadline": "72h",
    "value": {"usd_per_hour_waited": 2.0, "priority": 1.5},
    "phases": [
        {
            "name": "a", "share": 1.0, "min_nodes": 1, "max_nodes": 2, "may_pause": False,
            "throughput": {"points": [{"gpu": "T4", "units_per_s": 1}]},
            "evaluation": {"every": 5, "duration": "1m"},
        }
    ],
    "resources": {
        "gpu_models": ["T4"], "instance_types": ["g4dn.xlarge"], "min_nodes": 1, "max_nodes": 2,
        "min_gpus": 1, "max_gpus": 2, "min_gpu_memory_gib": 8, "min_memory_gib": 8.5,
    },
    "throughput": {
        "points": [
            {"gpu": "T4", "units_per_s": 2.0, "gpus": 2},
            {"gpu": "T4", "units_per_s": 1.0, "nodes": 1, "gpus_per_node": 1},
        ],
        "flops_per_unit": 1e9, "mfu": {"value": 0.4, "gpu": "T4", "gpus": 8},
        "scaling_efficiency": 0.9,
    },
    "checkpoint": {
        "uri": "c", "size_gib": 1, "save": 30, "restore": "1m", "interval": "10m",
        "region": "aws/us-east-1",
    },
    "budget": {"usd": 1, "kwh": 2, "usd_per_month": 3.5, "usd_per_hour": 1},
    "run": ["python", "train.py"],
    "env": {"A": "b", "EPOCHS": 3},
    "image": "ghcr.io/acme/train:2.1",
    "image_login": {"aws": "prod/ghcr", "gcp": "ghcr", "host": "ghcr"},
    "setup": ["pip install x"],
    "secrets": {"TOKEN": {"aws": "prod/x", "gcp": "x", "host": "x", "as_file": True}},
    "elastic": True,
    "max_failures": 5,
    "keep_failed": "30m",
    "workdir": ".",
    "data": {"uri": "s3://b/d", "size_gib": 0, "region": "aws/us-east-1"},
    "cache": [
        {
            "uri": "s3://b/w", "to": "/w", "size_gib": 1, "region": "aws/us-east-1",
            "sha256": "0" * 64, "in_image": False, "gbps": 2.5,
        }
    ],
    "startup": "2m",
}  # fmt: skip
OTHER_JOBS = ("array", "schedule")
"""What no job may have beside the fields above; tests/unit/spec tries them."""
POLICY: dict[str, Any] = {
    "kind": "policy",
    "version": 1,
    "name": "x",
    "objective": {
        "usd": 1.0, "usd_per_kwh": 0.2, "usd_per_tonne_co2e": 50, "carbon_signal": "average",
        "then": ["kwh", "finish"], "tolerance": 0.1,
    },
    "risk": {"on_time": 0.9, "reserve": "1m"},
    "strategy": {"name": "milp", "parameters": {"a": 1, "b": "x"}},
    "limits": {
        "max_usd": 5, "max_usd_per_hour": 5, "max_usd_per_month": 5, "max_price_age": "1h",
        "max_price_ratio": 1.5, "max_nodes": 4, "max_launches_per_hour": 10, "max_zone_share": 0.5,
        "max_kw": 3, "power_caps": True, "power_sweep": True, "providers": ["aws"],
        "regions": ["us-east-1"], "capacity_types": ["spot"],
    },
    "health": {
        "idle": "release", "idle_below": 0.1, "idle_after": "1h", "slow": "replace",
        "slow_beyond": 2, "slow_after": "15m", "faults": "replace", "max_replacements": 3,
    },
    "rules": [{"name": "r", "trigger": "slack", "low": 0, "high": 1, "then": {"max_nodes": 1}}],
}  # fmt: skip
ACCOUNT: dict[str, Any] = {
    "kind": "account",
    "version": 1,
    "owner": "me",
    "store": "s3://b/p",
    "quotas": [
        {
            "name": "q", "provider": "aws", "region": "us-east-1", "gpu_model": "H100",
            "families": ["p"], "capacity_type": "spot", "tenant": "t", "max_nodes": 1,
            "max_gpus": 8, "max_vcpus": 100, "max_kw": 5, "max_usd_per_hour": 10,
        }
    ],
    "tenants": [
        {
            "name": "t", "weight": 1, "max_usd": 5, "max_usd_per_month": 5, "max_usd_per_hour": 5,
            "max_nodes": 2, "prefixes": ["s3://other/t"],
        }
    ],
    "providers": {"aws": {"regions": ["us-east-1"]}},
    "guards": {
        "max_usd": 5, "max_usd_per_month": 5, "max_usd_per_hour": 5, "max_nodes": 2,
        "max_launches_per_hour": 100,
    },
    "electricity_contracts": [
        {
            "name": "wind", "provider": "aws", "regions": ["us-east-1"], "gco2e_per_kwh": 0,
            "first_day": "2026-01-01", "last_day": "2026-12-31", "kind": "contract",
        }
    ],
    "carbon": {"source": "watttime", "key_file": "key", "url": "https://proxy.example"},
    "prices": [
        {
            "name": "deal", "provider": "aws", "first_day": "2026-01-01",
            "last_day": "2026-12-31", "regions": ["us-east-1"], "zones": ["use1-az1"],
            "instance_types": ["p5*"], "capacity_types": ["spot"], "usd_per_hour": 20,
        }
    ],
    "discounts": [
        {"name": "edp", "provider": "aws", "capacity_types": ["on_demand"], "percent": 12.5}
    ],
    "commitments": [
        {
            "name": "plan", "provider": "aws", "kind": "savings_plan", "usd_per_hour": 10,
            "rates": {"p5.48xlarge": 30},
        },
        {
            "name": "cud", "provider": "gcp", "kind": "flexible_committed_use",
            "usd_per_hour": 10, "discount_percent": 28,
        },
        {
            "name": "held", "provider": "aws", "kind": "reservation", "nodes": 2,
            "marginal_usd_per_hour": 0.5,
        },
    ],
    "credits": [{"name": "grant", "provider": "aws", "usd": 5000}],
}  # fmt: skip


def _matches(
    validator: Any, pattern: str, value: object, _schema: object
) -> Iterator[ValidationError]:
    """ECMA 262, which JSON Schema refers to, has ``$`` match at the very end only."""
    if isinstance(value, str) and not re.search(pattern.replace("$", r"\Z"), value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


Validator = extend(Draft202012Validator, {"pattern": _matches})


@dataclass(frozen=True)
class Format:
    """A kind of file: a document that uses every field, its schema and its loader."""

    full: Mapping[str, Any]
    schema: Mapping[str, Any]
    section: type[FileModel]
    load: Callable[[Document], object]


FORMATS = {
    "job": Format(JOB, job_schema(), JobFile, lambda document: parse_job(document, NOW)),
    "policy": Format(POLICY, policy_schema(), PolicyFile, parse_policy),
    "account": Format(ACCOUNT, account_schema(), AccountFile, parse_account),
}
VALIDATORS = {kind: Validator(each.schema) for kind, each in FORMATS.items()}


def paths(value: object, at: FieldPath = ()) -> Iterator[FieldPath]:
    """The place of every value below the document."""
    items: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, inner in items:
        yield (*at, key)
        yield from paths(inner, (*at, key))


def changed(document: Mapping[str, Any], at: FieldPath, value: object) -> dict[str, Any]:
    """A copy of the document with another value at ``at``."""
    result: Any = copy.deepcopy(document)
    here = result
    for key in at[:-1]:
        here = here[key]
    here[at[-1]] = value
    assert isinstance(result, dict)
    return result


def required_with(each: Format, section: str | int) -> dict[str, Any]:
    """The full document's required fields and one more: a short document is checked faster."""
    form, *_ = each.schema.get("anyOf", [{}])
    names = {*each.schema.get("required", ()), *form.get("required", ()), section}
    return {name: value for name, value in each.full.items() if name in names}


def is_beyond_schema(value: object) -> bool:
    """Whether JSON Schema cannot say what the loader says of the value, or of one in it.

    2.0 is an integer to JSON Schema; the grammar of a shell, a calendar, a unit that is given
    twice and the sum of a duration's parts are beyond regular expressions.
    """
    if isinstance(value, dict):
        return any(map(is_beyond_schema, value.values()))
    if isinstance(value, list):
        return any(map(is_beyond_schema, value))
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, str) and (_has_odd_words(value) or _is_not_a_time(value))


def _has_odd_words(text: str) -> bool:
    try:
        return any(not 0 < len(word) <= 1024 for word in shlex.split(text))
    except ValueError:
        return True


def _is_not_a_time(text: str) -> bool:
    for parse in (parse_duration_s, lambda text: moment(text, NOW)):
        try:
            parse(text)
        except ValueError as error:
            if re.search(r"twice|ten years|year 10000", str(error)):
                return True
    return bool(re.match(r"\s*[+-]?[0-9]{4,}-", text))


EDGES: tuple[object, ...] = (
    None, True, False, 0, 1, -1, 2, 10_000, 10_001, 10**7, 10**30, 1e-13, 1e-9, 0.5, 0.51, 1.5,
    -0.5, 1e25, 999.5, 1001.5, "", " ", "x", "a b", "x" * 63, "x" * 64, "x" * 1024, "x" * 1025,
    "-x", "x\n", "auto", "72h", "72H", " 1d 12h ", "1d12h", "5y", "86400", "1.5", "-5", "1e3",
    "1m 1m", "2026-06-01T08:00:00Z", "steps", "spot", "usd", "slack", "average", "milp",
    "aws/us-east-1", "aws/", "p", "p5", [], {}, [None], [""], ["x"], ["spot"], ["usd"], [1],
    ["usd"] * 9, {"x": 1}, {"x": "y"}, {"x y": "z"}, {"x": None}, {"x": [1]}, {"name": "x"}, [{}],
    [{"name": "x"}], "ami-0", "a/b:é", {"x": {"host": "x"}}, {"x": {"host": None}},
    {"COSTOPT_X": {"host": "x"}}, "10 epochs", "2B tokens", "1000 steps", "whole job", "8xH100",
)  # fmt: skip
KEYS = ("name", "x", "x y", "usd", "max_nodes")

scalars = st.one_of(
    st.sampled_from([edge for edge in EDGES if not isinstance(edge, list | dict)]),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc")), max_size=12),
    st.from_regex(r"\A[0-9]{1,4}(\.[0-9])? ?(w|d|h|min|m|s|H)( [0-9]+s)?\Z"),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=4,
)


def check(kind: str, document: dict[str, Any]) -> None:
    """Structure that the loader refuses the schema refuses, and the other way round."""
    each = FORMATS[kind]
    parsed = parse_document(json.dumps(document, ensure_ascii=False), f"{kind}.yaml")
    assert parsed.values == document
    valid = VALIDATORS[kind].is_valid(document)
    refused = structural_problems(each.section, parsed)
    assert not (valid and refused)
    if not valid and not refused:
        with pytest.raises(SpecFileError):
            each.load(parsed)


def structural_problems(section: type[FileModel], document: Document) -> tuple[SpecProblem, ...]:
    """What is wrong with the document's shape, before its meaning is looked at."""
    try:
        parse_section(section, document)
    except SpecFileError as error:
        return tuple(error.problems)
    return ()


@pytest.mark.parametrize("kind", FORMATS)
def test_documents_that_use_every_field_are_valid(kind: str) -> None:
    each = FORMATS[kind]
    VALIDATORS[kind].validate(each.full)
    each.load(parse_document(json.dumps(each.full), f"{kind}.yaml"))
    assert set(each.full) == set(each.schema["properties"]) - set(OTHER_JOBS)


@pytest.mark.parametrize("kind", FORMATS)
def test_at_the_edges_of_every_field_schema_and_loader_agree(kind: str) -> None:
    edges = [value for value in EDGES if not is_beyond_schema(value)]
    for at in paths(FORMATS[kind].full):
        document = required_with(FORMATS[kind], at[0])
        for value in edges:
            check(kind, changed(document, at, value))


@pytest.mark.parametrize("kind", FORMATS)
@given(data=st.data())
@settings(deadline=None)
def test_schema_and_loader_agree(kind: str, data: st.DataObject) -> None:
    full = FORMATS[kind].full
    at = data.draw(st.sampled_from(list(paths(full))))
    value = data.draw(values.filter(lambda value: not is_beyond_schema(value)))
    check(kind, changed(full, at, value))


@pytest.mark.parametrize("run", [[], "", " "])
def test_a_command_without_a_word_is_refused(run: object) -> None:
    document = parse_document(json.dumps({**JOB, "run": run}), "job.yaml")
    with pytest.raises(SpecFileError) as refused:
        parse_job(document, NOW)
    assert [problem.field for problem in refused.value.problems] == ["run"]
    assert not VALIDATORS["job"].is_valid({**JOB, "run": run})
