"""Policy files: the shipped ones, what they mean and what is refused."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from costopt.domain.errors import SpecError
from costopt.domain.market import CapacityType
from costopt.domain.policy import Limits, Objective, ObjectiveTerm, Policy, StrategySpec
from costopt.spec import SpecFileError, bundled_policies, detect_kind, load_policy, policy_schema
from costopt.spec.yaml_document import read_document


def load(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    return load_policy(path)


def test_five_policies_are_shipped() -> None:
    names = ("cheapest", "balanced", "greenest", "deadline-first", "on-demand")
    assert bundled_policies() == names


@pytest.mark.parametrize("name", bundled_policies())
def test_a_shipped_policy_loads_under_its_name(name: str) -> None:
    policy = load_policy(name)
    assert policy.name == name
    assert policy.limits.max_price_age_s is not None
    assert policy.limits.max_launches_per_hour is not None


def test_the_on_demand_policy_never_rents_spot() -> None:
    policy = load_policy("on-demand")
    assert policy.strategy.name == "on_demand"
    assert policy.limits.capacity_types == (CapacityType.ON_DEMAND,)


def test_a_policy_that_says_nothing_has_the_domains_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "name: x\n") == Policy("x")


def test_a_strategy_may_have_parameters(tmp_path: Path) -> None:
    policy = load(
        tmp_path, "name: x\nstrategy: {name: milp, parameters: {a: 1, b: 0.5, c: true, d: e}}\n"
    )
    assert policy.strategy == StrategySpec("milp", {"a": 1, "b": 0.5, "c": True, "d": "e"})


def test_a_rule_replaces_only_the_limits_that_it_names(tmp_path: Path) -> None:
    policy = load(
        tmp_path,
        """\
name: x
limits: {max_usd: 100, max_nodes: 8, max_price_age: 10m}
rules:
  - {name: night, trigger: time_of_day, low: 22, high: 6, then: {max_nodes: 2}}
""",
    )
    assert policy.limits == Limits(max_usd=100, max_nodes=8, max_price_age_s=600)
    assert policy.rules[0].then == Limits(max_usd=100, max_nodes=2, max_price_age_s=600)
    assert policy.rules[0].is_active(23)


@pytest.mark.parametrize(
    ("limits", "then"),
    [
        ("max_usd: 5", "max_usd: 5000"),
        ("max_usd: 5", "max_usd: null"),
        ("max_usd_per_hour: 5", "max_usd_per_hour: 5.01"),
        ("max_usd_per_month: 5", "max_usd_per_month: null"),
        ("max_price_age: 10m", "max_price_age: 11m"),
        ("max_usd: 5", "max_price_ratio: 1.6"),
        ("max_nodes: 2", "max_nodes: 3"),
        ("max_usd: 5", "max_launches_per_hour: 61"),
        ("max_zone_share: 0.5", "max_zone_share: 0.6"),
        ("max_kw: 5", "max_kw: null"),
        ("providers: [aws]", "providers: [aws, gcp]"),
        ("regions: [eu-west-1]", "regions: [us-east-1]"),
        ("capacity_types: [spot]", "capacity_types: [spot, on_demand]"),
        ("power_caps: false", "power_caps: true"),
        ("power_caps: true", "power_sweep: true"),
    ],
)
def test_a_rule_may_loosen_no_limit(tmp_path: Path, limits: str, then: str) -> None:
    rule = f"{{name: a, trigger: slack, low: 0, high: 2, then: {{max_kw: 1, {then}}}}}"
    if "max_kw" in then:
        rule = rule.replace("max_kw: 1, ", "")
    with pytest.raises(SpecFileError) as caught:
        load(tmp_path, f"name: x\nlimits: {{{limits}}}\nrules: [{rule}]\n")
    (problem,) = caught.value.problems
    assert problem.field == f"rules[0].then.{then.partition(':')[0]}"


def test_a_rule_may_tighten_every_limit_and_allow_power_caps(tmp_path: Path) -> None:
    then = (
        "max_usd: 1, max_usd_per_hour: 1, max_usd_per_month: 1, max_price_age: 1m, "
        "max_price_ratio: 1.1, max_nodes: 1, max_launches_per_hour: 1, max_zone_share: 0.1, "
        "max_kw: 1, power_caps: true, providers: [aws], regions: [us-east-1], "
        "capacity_types: [spot]"
    )
    rule = f"{{name: a, trigger: slack, low: 0, high: 2, then: {{{then}}}}}"
    (read,) = load(tmp_path, f"name: x\nlimits: {{power_sweep: true}}\nrules: [{rule}]\n").rules
    unset = Limits()
    assert all(getattr(read.then, f.name) != getattr(unset, f.name) for f in fields(Limits))


@pytest.mark.parametrize(
    ("one", "other", "refused"),
    [
        ("slack, low: 0, high: 2", "queue_length, low: 1, high: 9", True),
        ("slack, low: 0, high: 2", "slack, low: 1, high: 9", True),
        ("slack, low: 0, high: 2", "slack, low: 2, high: 9", False),
        ("time_of_day, low: 22, high: 6", "time_of_day, low: 5, high: 7", True),
        ("time_of_day, low: 22, high: 6", "time_of_day, low: 6, high: 22", False),
    ],
)
def test_rules_that_hold_together_leave_something_allowed(
    tmp_path: Path, one: str, other: str, refused: bool
) -> None:
    text = (
        f"name: x\nrules:\n- {{name: a, trigger: {one}, then: {{regions: [us-east-1]}}}}\n"
        f"- {{name: b, trigger: {other}, then: {{regions: [us-east-2]}}}}\n"
    )
    if not refused:
        assert len(load(tmp_path, text).rules) == 2
        return
    with pytest.raises(SpecFileError) as caught:
        load(tmp_path, text)
    assert [each.field for each in caught.value.problems] == ["rules[1].then.regions"]


@pytest.mark.parametrize(
    ("limits", "field", "near"),
    [
        ("regions: [us-esat-1]", "limits.regions[0]", "'us-east-1'"),
        ("providers: [aws], regions: [mars-1]", "limits.regions[0]", "no region 'mars-1'"),
        ("providers: [awss]", "limits.providers[0]", "'aws'"),
    ],
)
def test_a_place_that_does_not_exist_is_refused(
    tmp_path: Path, limits: str, field: str, near: str
) -> None:
    with pytest.raises(SpecFileError) as caught:
        load(tmp_path, f"name: x\nlimits: {{{limits}}}\n")
    (problem,) = caught.value.problems
    assert problem.field == field
    assert near in problem.message


def test_a_region_unlike_any_may_be_another_adapters(tmp_path: Path) -> None:
    assert load(tmp_path, "name: x\nlimits: {regions: [mars-1]}\n").limits.regions == ("mars-1",)


def test_kilowatts_and_power_caps_are_limits(tmp_path: Path) -> None:
    policy = load(tmp_path, "name: x\nlimits: {max_kw: 12.5, power_caps: true}\n")
    assert policy.limits == Limits(max_kw=12.5, power_caps=True)
    assert load(tmp_path, "name: x\nlimits: {max_kw:}\n").limits.max_kw is None


def test_the_schema_knows_kilowatts_and_power_caps() -> None:
    limits = policy_schema()["$defs"]["LimitsSection"]["properties"]
    assert limits["power_caps"]["type"] == "boolean"
    assert limits["max_kw"]["anyOf"][0]["exclusiveMinimum"] == 0


def test_further_aims_are_read_in_their_order(tmp_path: Path) -> None:
    lines = "name: x\nobjective: {then: [kwh, finish], tolerance: 0.02}\n"
    objective = load(tmp_path, lines).objective
    assert objective.then == (ObjectiveTerm.KWH, ObjectiveTerm.FINISH)
    assert objective.tolerance == 0.02
    plain = load(tmp_path, "name: x\n").objective
    assert (plain.then, plain.tolerance) == ((), Objective().tolerance)


def test_null_lifts_a_limit(tmp_path: Path) -> None:
    assert load(tmp_path, "name: x\nlimits: {max_price_age:}\n").limits.max_price_age_s is None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("objective: {usd: 0}", (2, 12, "objective", "value_error")),
        ("objective: {usd: -1}", (2, 18, "objective.usd", "greater_than_equal")),
        ("objective: {carbon_signal: mean}", (2, 28, "objective.carbon_signal", "enum")),
        ("objective: {then: [speed]}", (2, 20, "objective.then[0]", "enum")),
        ("objective: {tolerance: 1}", (2, 24, "objective.tolerance", "less_than_equal")),
        ("risk: {on_time: 1}", (2, 17, "risk.on_time", "less_than")),
        ("risk: {on_tiem: 1}", (2, 8, "risk.on_tiem", "extra_forbidden", "'on_time'")),
        ("limits: {capacity_types: [spott]}", (2, 27, "limits.capacity_types[0]", "enum")),
        ("limits: {capacity_types: []}", (2, 26, "limits.capacity_types", "too_short")),
        ("limits: {max_zone_share: 1.5}", (2, 26, "limits.max_zone_share", "less_than_equal")),
        ("limits: {max_price_ratio: 0.5}", (2, 27, "limits.max_price_ratio", "greater_than_equal")),
        ("limits: {max_kw: 0}", (2, 18, "limits.max_kw", "greater_than")),
        ("limits: {power_caps: 250}", (2, 22, "limits.power_caps", "bool_type")),
        ("strategy: {name: milp, parameters: {a: [1]}}",
         (2, 40, "strategy.parameters.a", "float_type")),
        ("strategy: 5", (2, 11, "strategy", "model_type")),
        ("rules: [{name: a, trigger: slack, low: 2, high: 1, then: {max_nodes: 1}}]",
         (2, 9, "rules[0]", "value_error")),
        ("rules: [{name: a, trigger: time_of_day, low: 2, high: 25, then: {max_nodes: 1}}]",
         (2, 9, "rules[0]", "value_error")),
        ("rules: [{name: a, trigger: slack, low: 1, high: 2, then: {}}]",
         (2, 58, "rules[0].then", "value_error")),
        ("rules: [{name: a, trigger: moon, low: 1, high: 2, then: {max_nodes: 1}}]",
         (2, 28, "rules[0].trigger", "enum")),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_place(
    tmp_path: Path, lines: str, expected: tuple[Any, ...]
) -> None:
    with pytest.raises(SpecFileError) as caught:
        load(tmp_path, f"name: x\n{lines}\n")
    place, near = expected[:4], expected[4:]
    problems = [p for p in caught.value.problems if (p.line, p.column, p.field, p.code) == place]
    assert problems, caught.value.problems
    assert all(name in problems[0].message for name in near)


def test_an_unknown_name_is_reported_with_the_nearest() -> None:
    with pytest.raises(SpecError) as caught:
        load_policy("balancd")
    assert caught.value.subject == "balancd"
    assert "'balanced'" in str(caught.value)


def test_a_file_is_known_by_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    for text, kind in [
        ("name: x\nwork: 1\ndeadline: 1\n", "job"),
        ("name: x\nlimits: {}\n", "policy"),
        ("kind: job\nlimits: {}\n", "job"),
    ]:
        path.write_text(text)
        assert detect_kind(read_document(str(path))) == kind
    path.write_text("name: x\n")
    with pytest.raises(SpecFileError) as caught:
        detect_kind(read_document(str(path)))
    assert [problem.code for problem in caught.value.problems] == ["unknown_kind"]


def test_the_schema_has_its_id() -> None:
    schema = policy_schema()
    assert schema["$id"] == "urn:costopt:schema:policy:1"
    assert set(schema["properties"]) >= {"objective", "risk", "strategy", "limits", "rules"}
