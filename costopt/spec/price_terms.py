"""Private prices, discounts, commitments and credits of an account file, checked.

Names are held against the catalogue, and rules that contradict each other are refused: two private
prices, or two discounts, of one pool at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Protocol

from pydantic import Field

from costopt.catalog import load_catalog
from costopt.domain.account_price import CommitmentKind
from costopt.domain.commitments import Commitment, Credit, Discount, PoolPattern, PrivatePrice
from costopt.domain.market import CapacityType
from costopt.domain.price_terms import PriceTerms
from costopt.spec.catalog_names import misspelt_provider, misspelt_region
from costopt.spec.fields import Count, NotNegative, Positive, Text, did_you_mean
from costopt.spec.period_section import PeriodSection, period_problems
from costopt.spec.yaml_document import Document, SpecProblem

Percent = Annotated[float, Field(gt=0, le=100)]


class PoolsSection(PeriodSection):
    """Pools of a provider, from a day through another."""

    regions: list[Text] = Field(default_factory=list, description="default: all")
    zones: list[Text] = Field(default_factory=list, description="default: all")
    instance_types: list[Text] = Field(
        default_factory=list, description="such as p5.48xlarge or p5*; default: all"
    )

    def pools(self, capacity_types: Sequence[CapacityType] | None = None) -> PoolPattern:
        """Return the pattern; of on-demand pools unless other capacity types are given."""
        kinds = (CapacityType.ON_DEMAND,) if capacity_types is None else tuple(capacity_types)
        return PoolPattern(
            self.provider, tuple(self.regions), tuple(self.zones), tuple(self.instance_types), kinds
        )


class PricedPoolsSection(PoolsSection):
    """Pools whose price is not the listed one."""

    capacity_types: list[Annotated[CapacityType, Field(strict=False)]] = Field(
        default=[CapacityType.ON_DEMAND],
        min_length=1,
        description="on_demand, spot, reserved or flex_start; default: on_demand",
    )


class PriceSection(PricedPoolsSection):
    """A price of one's own, which replaces the listed one."""

    usd_per_hour: Positive = Field(description="of a node")

    def price(self) -> PrivatePrice:
        """Return it as the domain has it."""
        return PrivatePrice(
            self.name, self.pools(self.capacity_types), self.usd_per_hour, self.period()
        )


class DiscountSection(PricedPoolsSection):
    """A negotiated discount on list prices, where no private price counts."""

    percent: Percent = Field(description="off the list price")

    def discount(self) -> Discount:
        """Return it as the domain has it."""
        return Discount(self.name, self.pools(self.capacity_types), self.percent, self.period())


class CommitmentSection(PoolsSection):
    """What is paid for each hour, used or not, and covers on-demand nodes first."""

    kind: Annotated[CommitmentKind, Field(strict=False)] = Field(
        description="savings_plan and flexible_committed_use commit dollars; reserved_instances, "
        "committed_use and reservation nodes. A reservation holds capacity too"
    )
    usd_per_hour: Positive | None = Field(
        default=None, description="of the whole commitment; default of a reservation: on demand's"
    )
    nodes: Count | None = Field(default=None, description="how many nodes it covers")
    rates: dict[Text, Positive] = Field(
        default_factory=dict,
        description="of committed dollars: what a node uses per hour, by instance type",
    )
    discount_percent: Percent | None = Field(
        default=None,
        description="instead of rates: what a node uses is the catalogue's on-demand price less "
        "this",
    )
    marginal_usd_per_hour: NotNegative = Field(
        default=0.0, description="what a reserved node costs beside the reservation; default: 0"
    )

    def commitment(self) -> Commitment:
        """Return it as the domain has it, with a rate for each region and instance type."""
        return Commitment(
            name=self.name,
            kind=self.kind,
            pools=self.pools(),
            usd_per_hour=self.usd_per_hour,
            nodes=self.nodes,
            rates=self._rates(),
            marginal_usd_per_hour=self.marginal_usd_per_hour,
            period=self.period(),
        )

    def _rates(self) -> dict[tuple[str, str], float]:
        found = {("", name): usd for name, usd in self.rates.items()}
        if self.discount_percent is not None:
            for offer in load_catalog().offers():
                pool, listed = offer.pool, offer.price_usd_per_hour
                if listed is not None and self.pools().matches(pool):
                    share = 1 - self.discount_percent / 100
                    found[pool.region, pool.instance_type] = listed.value * share
        return found


class CreditSection(PeriodSection):
    """A credit, which pays for usage until it is used up."""

    usd: Positive = Field(description="what was granted")

    def credit(self) -> Credit:
        """Return it as the domain has it."""
        return Credit(self.name, self.provider, self.usd, self.period())


class TermSections(Protocol):
    """The sections of an account file that change what it pays."""

    prices: list[PriceSection]
    discounts: list[DiscountSection]
    commitments: list[CommitmentSection]
    credits: list[CreditSection]


def price_terms(file: TermSections) -> PriceTerms:
    """Return the terms of the file."""
    return PriceTerms(
        prices=tuple(each.price() for each in file.prices),
        discounts=tuple(each.discount() for each in file.discounts),
        commitments=tuple(each.commitment() for each in file.commitments),
        credits=tuple(each.credit() for each in file.credits),
    )


def price_term_problems(document: Document, file: TermSections) -> Iterator[SpecProblem]:
    """Yield what is wrong with each section: unknown names, dates, overlaps, missing fields."""
    sections: Mapping[str, Sequence[PeriodSection]] = {
        "prices": file.prices,
        "discounts": file.discounts,
        "commitments": file.commitments,
        "credits": file.credits,
    }
    for section, entries in sections.items():
        for index, entry in enumerate(entries):
            at = (section, index)
            yield from _provider_problems(document, at, entry)
            if any(entry.name == other.name for other in entries[:index]):
                message = f"{entry.name!r} names two {section}"
                yield document.problem((*at, "name"), message, code="duplicate")
            if isinstance(entry, PoolsSection):
                yield from _pool_problems(document, at, entry)
            if isinstance(entry, CommitmentSection):
                yield from _commitment_problems(document, at, entry)
    for section, rules in (("prices", file.prices), ("discounts", file.discounts)):
        yield from _overlaps(document, section, rules)


def _provider_problems(
    document: Document, at: tuple[str, int], entry: PeriodSection
) -> Iterator[SpecProblem]:
    if why := misspelt_provider(entry.provider):
        yield document.problem((*at, "provider"), why, code="unknown_name")
    yield from period_problems(document, at, entry)


def _pool_problems(
    document: Document, at: tuple[str, int], entry: PoolsSection
) -> Iterator[SpecProblem]:
    known = [machine.name for machine in load_catalog().find(provider=entry.provider)]
    for place, region in enumerate(entry.regions):
        if why := misspelt_region(region, (entry.provider,)):
            yield document.problem((*at, "regions", place), why, code="unknown_name")
    if entry.zones and not entry.regions:
        message = "give regions too: price lists have no zones"
        yield document.problem((*at, "zones"), message, on_key=True, code="missing")
    for place, name in enumerate(entry.instance_types):
        pattern = PoolPattern(entry.provider, instance_types=(name,))
        if known and not any(map(pattern.matches_type, known)):
            near = did_you_mean(name, known)
            message = f"{entry.provider} has no instance type {name!r} in the catalogue{near}"
            yield document.problem((*at, "instance_types", place), message, code="unknown_name")


def _commitment_problems(
    document: Document, at: tuple[str, int], entry: CommitmentSection
) -> Iterator[SpecProblem]:
    """Yield fields that a commitment of this kind needs, or cannot have."""
    kind, is_spend = entry.kind, entry.kind.is_spend
    is_reservation = kind is CommitmentKind.RESERVATION
    needed = ["usd_per_hour"] if is_spend else ["nodes"]
    needed += [] if is_spend or is_reservation else ["usd_per_hour"]
    for name in needed:
        if getattr(entry, name) is None:
            yield document.problem(at, f"a {kind.value} needs {name}", code="missing")
    if is_spend and bool(entry.rates) == (entry.discount_percent is not None):
        message = f"a {kind.value} needs either rates or discount_percent"
        yield document.problem(at, message, code="missing")
    foreign = {
        "nodes": is_spend,
        "rates": not is_spend,
        "discount_percent": not is_spend,
        "marginal_usd_per_hour": not is_reservation,
    }
    for name, is_foreign in foreign.items():
        if is_foreign and name in entry.model_fields_set:
            message = f"a {kind.value} has no {name}"
            yield document.problem((*at, name), message, on_key=True, code="extra_forbidden")
    known = [machine.name for machine in load_catalog().find(provider=entry.provider)]
    for name in entry.rates:
        if known and name not in known:
            message = f"{entry.provider} has no instance type {name!r} in the catalogue"
            near = did_you_mean(name, known)
            at_key = (*at, "rates", name)
            yield document.problem(at_key, message + near, on_key=True, code="unknown_name")


def _overlaps(
    document: Document, section: str, rules: Sequence[PricedPoolsSection]
) -> Iterator[SpecProblem]:
    for index, rule in enumerate(rules):
        for earlier in rules[:index]:
            if rule.period().overlaps(earlier.period()) and _share_a_pool(rule, earlier):
                message = f"applies to pools of {earlier.name!r} at the same time: keep one of them"
                yield document.problem((section, index), message, code="duplicate")


def _share_a_pool(one: PricedPoolsSection, other: PricedPoolsSection) -> bool:
    """Return whether some pool of the catalogue, or of a region that it lacks, is of both."""
    if one.provider != other.provider or not {*one.capacity_types} & {*other.capacity_types}:
        return False
    if not all(
        not mine or not theirs or {*mine} & {*theirs}
        for mine, theirs in ((one.regions, other.regions), (one.zones, other.zones))
    ):
        return False
    known = {machine.name for machine in load_catalog().find(provider=one.provider)}
    names = known | {*one.instance_types, *other.instance_types}
    return any(one.pools().matches_type(n) and other.pools().matches_type(n) for n in names)
