"""A greenhouse-gas inventory of a ledger: energy and emissions by month, region and signal.

All sums are whole numbers of micro-watt-hours and micrograms, taken as differences of each node's
running totals, so the rows of a job add up to its summary exactly. Market-based emissions count by
the job's contracts and are unknown where none covers the energy. Embodied carbon is a column of its
own and in no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from costopt.catalog import load_catalog
from costopt.domain.events import CarbonIntensityRecorded
from costopt.domain.policy import CarbonSignal
from costopt.formatting import number_text, percent_text
from costopt.ledger.job_account import JobAccount
from costopt.ledger.node_account import NodeAccount
from costopt.ledger.node_emissions import Emission, carbon_basis
from costopt.ledger.node_meter import from_milliseconds, to_milliseconds
from costopt.render.table import Column, Row, Table

SCOPE = (
    "For a tenant of a cloud, energy and embodied carbon are scope 3, category 1 (purchased goods "
    "and services); the electricity is the provider's scope 2, and that of who runs the machines."
)
METHODS = (
    "Location-based: energy × the grid's average intensity. Market-based: energy × what the "
    "account's electricity contracts state; unknown where none covers it. Marginal intensities, "
    "where a policy counts by them, do not belong in an inventory and have their own column. "
    "Embodied: the machines' making, spread over their lifetime; never part of the others."
)


@dataclass(frozen=True, slots=True)
class JobBooks:
    """A job's account, its recorded intensities, and the time until which it counts."""

    account: JobAccount
    intensities: Sequence[CarbonIntensityRecorded]
    now: datetime


@dataclass(slots=True)
class _Sums:
    """``unpowered`` and ``unembodied``: some node's figure is unknown, and with it the sum."""

    jobs: set[str] = field(default_factory=set)
    contracts: set[str] = field(default_factory=set)
    uwh: int = 0
    measured_uwh: int = 0
    emitted: Emission = field(default_factory=Emission)
    embodied_ugco2e: int = 0
    unpowered: bool = False
    unembodied: bool = False


_Key = tuple[str, str, str, CarbonSignal | None]
"""Month, provider, region and signal."""


def ghg_table(books: Iterable[JobBooks]) -> Table:
    """Return a row per month, region and signal; the facts are the totals, unknown where any is."""
    every = tuple(books)
    sums: dict[_Key, _Sums] = {}
    for each in every:
        for node in each.account.fleet.nodes.values():
            _add_node(sums, node, each)
    sources = _sources(every)
    rows = [_row(key, sums[key], sources) for key in sorted(sums, key=lambda key: key[:3])]
    return Table(
        "costopt.ghg/1",
        "Energy and emissions by month and region",
        GHG_COLUMNS,
        rows,
        facts={f"total_{key}": _total(rows, key) for key in _SUMMED},
        notes=(_totals_note(rows), METHODS, SCOPE),
    )


def _add_node(sums: dict[_Key, _Sums], node: NodeAccount, books: JobBooks) -> None:
    now_ms = to_milliseconds(books.now)
    for from_ms, until_ms in _months(node.launched_ms, node.until_ms(now_ms)):
        month = f"{from_milliseconds(from_ms):%Y-%m}"
        key = month, node.pool.provider, node.pool.region, node.launched.carbon_signal
        row = sums.setdefault(key, _Sums())
        row.jobs.add(books.account.job)
        row.uwh += sum(node.uwh(until_ms)) - sum(node.uwh(from_ms))
        row.measured_uwh += node.measured_uwh(until_ms) - node.measured_uwh(from_ms)
        row.emitted = row.emitted.plus(node.emitted(until_ms)).plus(node.emitted(from_ms), -1)
        row.unpowered |= node.unpowered_ms(until_ms) > 0
        before, after = node.embodied_ugco2e(from_ms), node.embodied_ugco2e(until_ms)
        if before is None or after is None:
            row.unembodied = True
        else:
            row.embodied_ugco2e += after - before
        row.contracts |= node.contract_names(from_ms, until_ms)


def _months(from_ms: int, until_ms: int) -> Iterator[tuple[int, int]]:
    """Yield the stretch cut at the first instant of each month; one that is empty as it is."""
    knots = [from_ms]
    at = from_milliseconds(from_ms)
    while True:
        later = datetime(at.year, at.month, 1, tzinfo=UTC) + timedelta(days=32)
        at = datetime(later.year, later.month, 1, tzinfo=UTC)
        if to_milliseconds(at) >= until_ms:
            break
        knots.append(to_milliseconds(at))
    return pairwise([*knots, until_ms])


_Grid = tuple[str, str, CarbonSignal]


def _sources(books: Iterable[JobBooks]) -> Mapping[_Grid, frozenset[str]]:
    """Return, by month, "provider/region" and signal, where hourly intensities come from."""
    found: dict[_Grid, set[str]] = {}
    for each in books:
        for event in each.intensities:
            key = f"{event.hour_at:%Y-%m}", event.region, event.carbon_signal
            found.setdefault(key, set()).add(event.source)
    return {key: frozenset(sources) for key, sources in found.items()}


def _row(key: _Key, sums: _Sums, sources: Mapping[_Grid, frozenset[str]]) -> Row:
    month, provider, region, signal = key
    emitted = _kilograms(sums.emitted.ugco2e, sums.unpowered or sums.emitted.unknown_uwh)
    market_based = _kilograms(
        sums.emitted.market_ugco2e, sums.unpowered or sums.emitted.uncontracted_uwh
    )
    average = signal is CarbonSignal.AVERAGE
    hourly = sums.emitted.hourly_uwh / sums.uwh if sums.uwh and not sums.unpowered else None
    return {
        "month": month,
        "provider": provider,
        "region": region,
        "jobs": len(sums.jobs),
        "kwh": None if sums.unpowered else sums.uwh / 1e9,
        "measured_share": sums.measured_uwh / sums.uwh if sums.uwh else None,
        "location_based_kgco2e": emitted if average else None,
        "market_based_kgco2e": market_based,
        "marginal_kgco2e": emitted if signal is CarbonSignal.MARGINAL else None,
        "embodied_kgco2e": None if sums.unembodied else sums.embodied_ugco2e / 1e9,
        "intensity_kind": None if signal is None else signal.value,
        "intensity_basis": carbon_basis(frozenset({signal}), sums.emitted.hourly_uwh, sums.uwh),
        "hourly_share": hourly,
        "contracts": "; ".join(sorted(sums.contracts)) or None,
        "sources": _sources_text(key, hourly, sources),
    }


def _sources_text(
    key: _Key, hourly: float | None, sources: Mapping[_Grid, frozenset[str]]
) -> str | None:
    month, provider, name, signal = key
    grid = month, f"{provider}/{name}", signal or CarbonSignal.AVERAGE
    texts = sorted(sources.get(grid, frozenset()))
    region = load_catalog().region(provider, name)
    if region is not None and hourly is not None and hourly < 1:
        texts.append(f"annual mean: {region.source}")
    return "; ".join(texts) or None


def _kilograms(ugco2e: int, unknown: int) -> float | None:
    return None if unknown else ugco2e / 1e9


MARGINAL = CarbonSignal.MARGINAL.value
_SUMMED = (
    "kwh",
    "location_based_kgco2e",
    "market_based_kgco2e",
    "marginal_kgco2e",
    "embodied_kgco2e",
)


def _total(rows: Sequence[Row], key: str) -> float | None:
    """Return the sum; None where any row's figure is unknown. Marginal figures are of the rows that
    count by them alone."""
    counted = [row for row in rows if key != "marginal_kgco2e" or row["intensity_kind"] == MARGINAL]
    known = [value for row in counted if isinstance(value := row[key], float)]
    return sum(known) if counted and len(known) == len(counted) else None


def _totals_note(rows: Sequence[Row]) -> str:
    figures = {key: _kg_text(_total(rows, key)) for key in _SUMMED[1:]}
    kwh, marginal = _total(rows, "kwh"), _total(rows, "marginal_kgco2e")
    return (
        f"Total: {'unknown' if kwh is None else number_text(kwh)} kWh; location-based "
        f"{figures['location_based_kgco2e']}, market-based {figures['market_based_kgco2e']}; "
        + ("" if marginal is None else f"by marginal intensities {_kg_text(marginal)}; ")
        + f"embodied, apart, {figures['embodied_kgco2e']}."
    )


def _kg_text(kilograms: float | None) -> str:
    return "unknown" if kilograms is None else f"{kilograms:,.3f} kg"


def _kg_cell(kilograms: float) -> str:
    return f"{kilograms:,.3f}"


GHG_COLUMNS = (
    Column("month", "Month"),
    Column("provider", "Provider", rank=2),
    Column("region", "Region"),
    Column("jobs", "Jobs", right=True, rank=3),
    Column("kwh", "kWh", number_text, right=True),
    Column("measured_share", "Measured", percent_text, right=True, rank=2),
    Column("location_based_kgco2e", "Location-based kg", _kg_cell, right=True),
    Column("market_based_kgco2e", "Market-based kg", _kg_cell, right=True, unknown="unknown"),
    Column("marginal_kgco2e", "Marginal kg", _kg_cell, right=True, rank=2),
    Column("embodied_kgco2e", "Embodied kg", _kg_cell, right=True, unknown="unknown"),
    Column("intensity_kind", "Signal", detail=True),
    Column("intensity_basis", "Intensity", rank=1, fold_at=30),
    Column("hourly_share", "Hourly", percent_text, right=True, rank=3),
    Column("contracts", "Contracts", rank=2),
    Column("sources", "Sources", rank=4, fold_at=40),
)
