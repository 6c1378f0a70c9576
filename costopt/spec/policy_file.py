"""What a policy file may say, and the domain's Policy that it means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from costopt.domain.market import CapacityType
from costopt.domain.policy import (
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
from costopt.spec.document import Document, FieldPath
from costopt.spec.problem import SpecFileError
from costopt.spec.section import (
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

LIMITS, OBJECTIVE = Limits(), Objective()


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
        description="adaptive, milp, uniform_progress, greedy_spot, on_demand",
    )
    parameters: dict[Name, Parameter] = Field(
        default_factory=dict, description="the strategy's own parameters"
    )


class LimitsSection(FileModel):
    """Guards and filters; null is no limit."""

    max_usd: Positive | None = Field(
        default=LIMITS.max_usd, description="dollars of one job in total"
    )
    max_usd_per_hour: Positive | None = Field(
        default=LIMITS.max_usd_per_hour, description="dollars per hour of everything that runs"
    )
    max_usd_per_month: Positive | None = Field(
        default=LIMITS.max_usd_per_month,
        description="dollars in a calendar month of all of a tenant's jobs under policies of this "
        "name, those that are over included",
    )
    max_price_age: DurationS | None = Field(
        default=LIMITS.max_price_age_s, description="prices older than this are not launched on"
    )
    max_price_ratio: Annotated[float, Field(ge=1, le=1000)] | None = Field(
        default=LIMITS.max_price_ratio,
        description="realized over planned price beyond which a node stops",
    )
    max_nodes: Count | None = Field(
        default=LIMITS.max_nodes, description="nodes of all jobs at once"
    )
    max_launches_per_hour: Count | None = Field(
        default=LIMITS.max_launches_per_hour, description="nodes launched within any hour"
    )
    max_zone_share: Share | None = Field(
        default=LIMITS.max_zone_share, description="largest share of the nodes in one zone"
    )
    max_kw: Positive | None = Field(
        default=LIMITS.max_kw,
        description="kilowatts of all nodes at once while they train, at the data centre's meter",
    )
    power_caps: bool = Field(
        default=LIMITS.power_caps,
        description="plans may cap the power of GPUs where that saves energy; "
        "agents need the right to set it",
    )
    providers: Annotated[list[Text], Field(min_length=1)] = Field(
        default_factory=lambda: list(LIMITS.providers), description="allowed; default: all"
    )
    regions: Annotated[list[Text], Field(min_length=1)] = Field(
        default_factory=lambda: list(LIMITS.regions), description="allowed; default: all"
    )
    capacity_types: Annotated[
        list[Annotated[CapacityType, Field(strict=False)]], Field(min_length=1)
    ] = Field(
        default_factory=lambda: list(LIMITS.capacity_types),
        description="on which terms nodes may be rented",
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
    )


def _contradictions(file: PolicyFile) -> list[tuple[FieldPath, str]]:
    found: list[tuple[FieldPath, str]] = []
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
        found += [(at, said) for said in _range_faults(rule)]
    return found


def _loosened(limits: LimitsSection, then: LimitsSection) -> Iterator[tuple[str, str]]:
    """The fields of ``then`` that allow more than the policy does, with what is wrong."""
    for name in _limits(limits).loosened_by(_limits(_over(limits, then))):
        field, unit = ("max_price_age", " s") if name == "max_price_age_s" else (name, "")
        value = getattr(limits, field)
        own = ", ".join(value) if isinstance(value, list) else f"{value:g}{unit}"
        yield field, f"is looser than the policy's own {own}; a rule may only tighten limits"


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
    return Limits(
        max_usd=section.max_usd,
        max_usd_per_hour=section.max_usd_per_hour,
        max_usd_per_month=section.max_usd_per_month,
        max_price_age_s=section.max_price_age,
        max_price_ratio=section.max_price_ratio,
        max_nodes=section.max_nodes,
        max_launches_per_hour=section.max_launches_per_hour,
        max_zone_share=section.max_zone_share,
        max_kw=section.max_kw,
        power_caps=section.power_caps,
        providers=tuple(section.providers),
        regions=tuple(section.regions),
        capacity_types=tuple(section.capacity_types),
    )
