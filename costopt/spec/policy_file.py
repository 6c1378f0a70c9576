"""The schema of policy.yaml, its conversion to the domain's Policy, and the shipped policies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from costopt.domain.gpu_health import HealthRules
from costopt.domain.limits import LimitUnit
from costopt.domain.policy import (
    LIMIT_SPECS,
    POOL_LIMITS,
    Limits,
    Objective,
    Policy,
    Risk,
    Rule,
    RuleSignal,
    StrategySpec,
)
from costopt.spec.declared import section_model, to_domain
from costopt.spec.fields import (
    FileModel,
    Name,
    Version,
)
from costopt.spec.yaml_document import Document, FieldPath, SpecFileError


def _named(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


Parameter = Annotated[
    float | int | str | bool, WithJsonSchema({"type": ["number", "integer", "string", "boolean"]})
]


if TYPE_CHECKING:
    ObjectiveSection = FileModel
    RiskSection = FileModel
    StrategySection = FileModel
    LimitsSection = FileModel
    RuleSection = FileModel
    HealthSection = FileModel
else:
    ObjectiveSection = section_model("ObjectiveSection", Objective)
    RiskSection = section_model("RiskSection", Risk)
    StrategySection = section_model(
        "StrategySection", StrategySpec, parameters=dict[Name, Parameter]
    )
    LimitsSection = section_model(
        "LimitsSection", Limits, "Guards and filters; null means no limit."
    )
    RuleSection = section_model("RuleSection", Rule, then=LimitsSection)
    ALERT_OR_REPLACE = Literal["alert", "replace"]
    HealthSection = section_model(
        "HealthSection", HealthRules, slow=ALERT_OR_REPLACE, faults=ALERT_OR_REPLACE
    )


class PolicyFile(FileModel):
    """Preferences and limits; never names a job."""

    kind: Literal["policy"] = Field(default="policy", description="what this file is")
    version: Version = Field(default=1, description="version of this format")
    name: Name = Field(description="the policy's name")
    objective: ObjectiveSection = Field(default=ObjectiveSection(), description="what is minimized")
    risk: RiskSection = Field(default=RiskSection(), description="how sure to be")
    strategy: Annotated[
        StrategySection, BeforeValidator(_named, json_schema_input_type=StrategySection | Name)
    ] = Field(default=StrategySection(), description="the algorithm, by name or with parameters")
    limits: LimitsSection = Field(default=LimitsSection(), description="guards and filters")
    rules: list[RuleSection] = Field(
        default_factory=list, description="limits that apply while a signal is in a range"
    )
    health: HealthSection = Field(default=HealthSection(), description="unhealthy nodes")


def policy_of(file: PolicyFile, document: Document) -> Policy:
    """The Policy that ``file`` means. Raises SpecFileError with every contradiction."""
    problems = [document.problem(at, message) for at, message in _contradictions(file)]
    if problems:
        raise SpecFileError(problems)
    return Policy(
        name=file.name,
        objective=to_domain(Objective, file.objective),
        risk=to_domain(Risk, file.risk),
        strategy=to_domain(StrategySpec, file.strategy),
        limits=to_domain(Limits, file.limits),
        rules=tuple(_rule(file.limits, each) for each in file.rules),
        health=to_domain(HealthRules, file.health),
    )


def _rule(limits: FileModel, section: Any) -> Rule:
    """The rule, whose limits are the policy's where it names none."""
    named = {name: getattr(section.then, name) for name in section.then.model_fields_set}
    return to_domain(Rule, section, then=to_domain(Limits, limits.model_copy(update=named)))


def _contradictions(file: PolicyFile) -> list[tuple[FieldPath, str]]:
    objective, limits = to_domain(Objective, file.objective), to_domain(Limits, file.limits)
    found = list(_misspelt_places(("limits",), limits))
    if not (objective.usd or objective.usd_per_kwh or objective.usd_per_tonne_co2e):
        found.append((("objective",), "every weight is 0, so there is nothing to minimize"))
    sections: list[Any] = list(file.rules)
    rules = [to_domain(Rule, each, then=to_domain(Limits, each.then)) for each in sections]
    names = [rule.name for rule in rules]
    for index, (rule, section) in enumerate(zip(rules, sections, strict=True)):
        at: FieldPath = ("rules", index)
        found += _misspelt_places((*at, "then"), rule.then)
        if rule.name in names[:index]:
            found.append(((*at, "name"), f"{rule.name!r} names two rules"))
        if not section.then.model_fields_set:
            found.append(((*at, "then"), "names no limit, so the rule changes nothing"))
        found += [((*at, "then", name), said) for name, said in _loosened(file, section)]
        for earlier in rules[:index]:
            found += [((*at, "then", name), said) for name, said in _disjoint(earlier, rule)]
        found += [(at, said) for said in _range_faults(rule)]
    return found


def _misspelt_places(at: FieldPath, limits: Limits) -> Iterator[tuple[FieldPath, str]]:
    """The providers and regions that limits list, but that do not exist."""
    from costopt.spec.catalog_names import misspelt_provider, misspelt_region

    for index, name in enumerate(limits.providers):
        if why := misspelt_provider(name):
            yield (*at, "providers", index), why
    for index, name in enumerate(limits.regions):
        if why := misspelt_region(name, limits.providers):
            yield (*at, "regions", index), why


def _loosened(file: PolicyFile, section: Any) -> Iterator[tuple[str, str]]:
    """The fields of a rule that allow more than the policy does, with what is wrong."""
    limits, then = to_domain(Limits, file.limits), to_domain(Limits, section.then)
    for name in limits.loosened_by(_rule(file.limits, section).then):
        spec = LIMIT_SPECS[name]
        value, unit = getattr(limits, name), " s" if spec.unit is LimitUnit.SECONDS else ""
        own = ", ".join(value) if isinstance(value, tuple) else f"{value:g}{unit}"
        yield spec.key, f"is looser than the policy's own {own}; a rule may only tighten limits"
    if "power_caps" in file.limits.model_fields_set and then.power_caps > limits.power_caps:
        yield "power_caps", "the policy forbids them; a rule may only tighten limits"
    if then.power_sweep > limits.power_sweep:
        yield "power_sweep", "the policy does not allow them; a rule may only tighten limits"


def _disjoint(one: Rule, other: Rule) -> Iterator[tuple[str, str]]:
    """The lists of which both rules allow nothing, with why, if both may hold at a time."""
    # Where a value of the signal is in both ranges, one of them holds the other's low.
    overlap = one.is_active(other.low) or other.is_active(one.low)
    if one.trigger is other.trigger and not overlap:
        return
    for spec in POOL_LIMITS:
        lists = [getattr(rule.then, spec.field) for rule in (one, other)]
        if all(lists) and not set(lists[0]) & set(lists[1]):
            message = (
                f"shares no entry with the rule {one.name!r}, which may hold at the same time, "
                "when one of them would be ignored"
            )
            yield spec.key, message


def _range_faults(rule: Rule) -> list[str]:
    """A window of hours may cross midnight; other ranges ascend."""
    if rule.low == rule.high:
        return [f"low and high are both {rule.low:g}, so the rule never holds"]
    if rule.trigger is RuleSignal.TIME_OF_DAY:
        inside = 0 <= rule.low <= 24 and 0 <= rule.high <= 24
        return [] if inside else ["expected hours between 0 and 24"]
    return [] if rule.low < rule.high else [f"low, {rule.low:g}, is above high, {rule.high:g}"]


BUNDLED_POLICIES = ("cheapest", "balanced", "greenest", "deadline-first", "on-demand")


def bundled_policies() -> tuple[str, ...]:
    """Return the names of the shipped policies, the plainest first."""
    found = {path.stem for path in _folder().glob("*.yaml")}
    return tuple(name for name in BUNDLED_POLICIES if name in found) + tuple(
        sorted(found - set(BUNDLED_POLICIES))
    )


def bundled_policy_path(name: str) -> str:
    """The file of a shipped policy."""
    return str(_folder() / f"{name}.yaml")


def _folder() -> Path:
    """Inside the installed package, or beside it in a working tree."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "policies"
    return installed if installed.is_dir() else package.parent / "policies"
