"""The schema of policy.yaml, its conversion to the domain's Policy, and the shipped policies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, create_model

from costopt.domain.gpu_health import HealthAction, HealthRules
from costopt.domain.limits import LimitSpec, LimitUnit
from costopt.domain.market import CapacityType
from costopt.domain.policy import (
    LIMIT_SPECS,
    POOL_LIMITS,
    CarbonSignal,
    Limits,
    Objective,
    ObjectiveTerm,
    Policy,
    Risk,
    Rule,
    RuleSignal,
    StrategySpec,
)
from costopt.spec.fields import (
    Count,
    DurationS,
    FileModel,
    Name,
    NotNegative,
    Positive,
    Share,
    Text,
    Version,
)
from costopt.spec.yaml_document import Document, FieldPath, SpecFileError

LIMITS, OBJECTIVE, HEALTH = Limits(), Objective(), HealthRules()


class ObjectiveSection(FileModel):
    """What is minimized: usd · $ + usd_per_kwh · kWh + usd_per_tonne_co2e · t, in dollars."""

    usd: NotNegative = Field(default=1.0, description="weight of a dollar spent")
    usd_per_kwh: NotNegative = Field(
        default=0.0, description="dollars that a kilowatt-hour counts for"
    )
    usd_per_tonne_co2e: NotNegative = Field(
        default=0.0, description="dollars that a tonne of CO2e counts for"
    )
    carbon_signal: Annotated[CarbonSignal, Field(strict=False)] = Field(
        default=CarbonSignal.AVERAGE, description="which carbon intensity of the grid counts"
    )
    then: Annotated[
        list[Annotated[ObjectiveTerm, Field(strict=False)]], Field(max_length=len(ObjectiveTerm))
    ] = Field(
        default_factory=list,
        description="among plans that are nearly as good, less of these, one after the other: "
        "usd, kwh, co2e, finish",
    )
    tolerance: Annotated[float, Field(ge=0, le=0.5)] = Field(
        default=OBJECTIVE.tolerance,
        description="share by which each of them may make what comes before it worse",
    )


class RiskSection(FileModel):
    """How sure a plan must be."""

    on_time: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.95, description="least probability of finishing by the deadline"
    )
    reserve: DurationS = Field(
        default=600.0, description="time held back besides the job's own start-up and restore"
    )


def _named(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


Parameter = Annotated[
    float | int | str | bool, WithJsonSchema({"type": ["number", "integer", "string", "boolean"]})
]


class StrategySection(FileModel):
    """The algorithm that decides."""

    name: Name = Field(
        default=StrategySpec().name,
        description="adaptive, milp, uniform_progress, greedy_spot, on_demand, or one that "
        "another package brings",
    )
    parameters: dict[Name, Parameter] = Field(
        default_factory=dict, description="the strategy's own parameters"
    )


_NUMBER_TYPES: dict[LimitUnit, Any] = {
    LimitUnit.USD: Positive | None,
    LimitUnit.NUMBER: Count | None,
    LimitUnit.KW: Positive | None,
    LimitUnit.SECONDS: DurationS | None,
    LimitUnit.RATIO: Annotated[float, Field(ge=1, le=1000)] | None,
    LimitUnit.SHARE: Share | None,
    LimitUnit.FLAG: bool,
}
_LIST_TYPES: dict[LimitUnit, Any] = {
    LimitUnit.NAMES: Annotated[list[Text], Field(min_length=1)],
    LimitUnit.CAPACITY_TYPES: Annotated[
        list[Annotated[CapacityType, Field(strict=False)]], Field(min_length=1)
    ],
}


def _limit_field(spec: LimitSpec) -> tuple[Any, Any]:
    """The type of a limit in the file, and its default and description."""
    default = getattr(LIMITS, spec.field)
    if spec.unit in _LIST_TYPES:
        field = Field(default_factory=lambda: list(default), description=spec.help)
        return _LIST_TYPES[spec.unit], field
    return _NUMBER_TYPES[spec.unit], Field(default=default, description=spec.help)


if TYPE_CHECKING:

    class LimitsSection(FileModel): ...

else:
    LimitsSection = create_model(
        "LimitsSection",
        __base__=FileModel,
        __module__=__name__,
        __doc__="Guards and filters; null means no limit.",
        **{spec.key: _limit_field(spec) for spec in LIMIT_SPECS.values()},
    )


class RuleSection(FileModel):
    """While low ≤ signal < high, ``then`` tightens the limits that it names."""

    name: Name = Field(description="the rule's name")
    trigger: Annotated[RuleSignal, Field(strict=False)] = Field(
        description="time_of_day (hours UTC), queue_length (jobs) or slack (hours)"
    )
    low: Annotated[float, Field(ge=-1e6, le=1e6)] = Field(description="the signal's lower bound")
    high: Annotated[float, Field(ge=-1e6, le=1e6)] = Field(
        description="the bound that the signal stays below"
    )
    then: LimitsSection = Field(
        description="tighter limits while the rule holds; the others stay, and none is loosened"
    )


class HealthSection(FileModel):
    """What is done about idle, slow and faulty nodes."""

    idle: Annotated[HealthAction, Field(strict=False)] = Field(
        default=HEALTH.idle,
        description="alert; release: save and stop the job; or replace the node",
    )
    idle_below: Share = Field(
        default=HEALTH.idle_below,
        description="share of GPU utilization, or of the planned progress, below which it is idle",
    )
    idle_after: DurationS = Field(
        default=HEALTH.idle_after_s,
        description="for how much time of training; before it, for twice as long at least",
    )
    slow: Literal["alert", "replace"] = Field(
        default="alert", description="alert, or replace a node that slows its gang down"
    )
    slow_beyond: Annotated[float, Field(ge=1.05, le=1000)] = Field(
        default=HEALTH.slow_beyond,
        description="times the median time of its gang's nodes beyond which a node is slow",
    )
    slow_after: DurationS = Field(
        default=HEALTH.slow_after_s, description="for how much time of training"
    )
    faults: Literal["alert", "replace"] = Field(
        default="alert", description="alert, or replace a node whose GPUs report a hardware error"
    )
    max_replacements: Count = Field(
        default=HEALTH.max_replacements, description="nodes of a job replaced in 24 hours"
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
        objective=Objective(
            file.objective.usd,
            file.objective.usd_per_kwh,
            file.objective.usd_per_tonne_co2e,
            file.objective.carbon_signal,
            tuple(file.objective.then),
            file.objective.tolerance,
        ),
        risk=Risk(file.risk.on_time, file.risk.reserve),
        strategy=StrategySpec(file.strategy.name, dict(file.strategy.parameters)),
        limits=_limits(file.limits),
        rules=tuple(
            Rule(r.name, r.trigger, r.low, r.high, _limits(_over(file.limits, r.then)))
            for r in file.rules
        ),
        health=HealthRules(
            file.health.idle,
            file.health.idle_below,
            file.health.idle_after,
            HealthAction(file.health.slow),
            file.health.slow_beyond,
            file.health.slow_after,
            HealthAction(file.health.faults),
            file.health.max_replacements,
        ),
    )


def _contradictions(file: PolicyFile) -> list[tuple[FieldPath, str]]:
    found = list(_misspelt_places(file))
    weights = file.objective
    if not (weights.usd or weights.usd_per_kwh or weights.usd_per_tonne_co2e):
        found.append((("objective",), "every weight is 0, so there is nothing to minimize"))
    names = [rule.name for rule in file.rules]
    for index, rule in enumerate(file.rules):
        at: FieldPath = ("rules", index)
        if rule.name in names[:index]:
            found.append(((*at, "name"), f"{rule.name!r} names two rules"))
        if not rule.then.model_fields_set:
            found.append(((*at, "then"), "names no limit, so the rule changes nothing"))
        found += [((*at, "then", name), said) for name, said in _loosened(file.limits, rule.then)]
        for earlier in file.rules[:index]:
            found += [((*at, "then", name), said) for name, said in _disjoint(earlier, rule)]
        found += [(at, said) for said in _range_faults(rule)]
    return found


def _misspelt_places(file: PolicyFile) -> Iterator[tuple[FieldPath, str]]:
    """The providers and regions that limits and rules list, but that do not exist."""
    from costopt.spec.catalog_names import misspelt_provider, misspelt_region

    sections: list[tuple[FieldPath, LimitsSection]] = [(("limits",), file.limits)]
    sections += [(("rules", index, "then"), rule.then) for index, rule in enumerate(file.rules)]
    for at, section in sections:
        limits = _limits(section)
        for index, name in enumerate(limits.providers):
            if why := misspelt_provider(name):
                yield (*at, "providers", index), why
        for index, name in enumerate(limits.regions):
            if why := misspelt_region(name, limits.providers):
                yield (*at, "regions", index), why


def _loosened(limits: LimitsSection, then: LimitsSection) -> Iterator[tuple[str, str]]:
    """The fields of ``then`` that allow more than the policy does, with what is wrong."""
    for name in _limits(limits).loosened_by(_limits(_over(limits, then))):
        spec = LIMIT_SPECS[name]
        field, unit = spec.key, " s" if spec.unit is LimitUnit.SECONDS else ""
        value = getattr(limits, field)
        own = ", ".join(value) if isinstance(value, list) else f"{value:g}{unit}"
        yield field, f"is looser than the policy's own {own}; a rule may only tighten limits"
    if (
        "power_caps" in limits.model_fields_set
        and _limits(then).power_caps > _limits(limits).power_caps
    ):
        yield "power_caps", "the policy forbids them; a rule may only tighten limits"
    if _limits(then).power_sweep > _limits(limits).power_sweep:
        yield "power_sweep", "the policy does not allow them; a rule may only tighten limits"


def _disjoint(one: RuleSection, other: RuleSection) -> Iterator[tuple[str, str]]:
    """The lists of which both rules allow nothing, with why, if both may hold at a time."""
    if one.trigger is other.trigger and not _overlap(one, other):
        return
    for spec in POOL_LIMITS:
        lists = [getattr(rule.then, spec.key) for rule in (one, other)]
        if all(lists) and not set(lists[0]) & set(lists[1]):
            message = (
                f"shares no entry with the rule {one.name!r}, which may hold at the same time, "
                "when one of them would be ignored"
            )
            yield spec.key, message


def _overlap(one: RuleSection, other: RuleSection) -> bool:
    """Whether a value of the signal is in both ranges, of which one then holds the other's low."""
    first, second = (Rule(r.name, r.trigger, r.low, r.high, LIMITS) for r in (one, other))
    return first.is_active(second.low) or second.is_active(first.low)


def _range_faults(rule: RuleSection) -> list[str]:
    """A window of hours may cross midnight; other ranges ascend."""
    if rule.low == rule.high:
        return [f"low and high are both {rule.low:g}, so the rule never holds"]
    if rule.trigger is RuleSignal.TIME_OF_DAY:
        inside = 0 <= rule.low <= 24 and 0 <= rule.high <= 24
        return [] if inside else ["expected hours between 0 and 24"]
    return [] if rule.low < rule.high else [f"low, {rule.low:g}, is above high, {rule.high:g}"]


def _over(limits: LimitsSection, then: LimitsSection) -> LimitsSection:
    named = {name: getattr(then, name) for name in then.model_fields_set}
    return limits.model_copy(update=named)


def _limits(section: LimitsSection) -> Limits:
    values: dict[str, Any] = {}
    for spec in LIMIT_SPECS.values():
        value = getattr(section, spec.key)
        values[spec.field] = tuple(value) if isinstance(value, list) else value
    return Limits(**values)


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
