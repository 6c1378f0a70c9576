"""`costopt market record`, and the import of public records as market histories.

For `import`, what a record's file does not say comes from the options.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.options import check_record, words
from costopt.domain.errors import MarketError
from costopt.domain.history import MarketHistory
from costopt.domain.market import CapacityType, Pool

if TYPE_CHECKING:
    from costopt.engine.loop import WallClock
    from costopt.market.recorder import PartResult, RecordingResult
    from costopt.provider.base import PriceSeriesKey, Provider

    OnPart = Callable[[PartResult], None]


@click.command()
@click.option("--provider", required=True, metavar="NAME",
              help="The provider to query, such as aws.")  # fmt: skip
@click.option("--regions", metavar="A,B,…",
              help="Default: all of the catalogue's regions of the provider.")  # fmt: skip
@click.option("--types", metavar="A,B,…", default="",
              help="Instance types or wildcards such as p5*; default: all with GPUs.")  # fmt: skip
@click.option("--days", type=click.IntRange(1, 3650), default=90,
              help="How far back a new history goes; AWS offers 90 days.")  # fmt: skip
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True,
              metavar="FILE", help="The parquet file to write, or to continue.")  # fmt: skip
def record(provider: str, regions: str | None, types: str, days: int, out: Path) -> None:
    """Record a provider's spot prices as a market history.

    Run again, it fetches only what is new; killed, it resumes. Regions and types that cannot be
    queried are reported and left out. On-demand pools are included at today's list price. Providers
    publish no past capacity, so the history leaves it open: plan takes such a history as it is, and
    market fill models the capacity that backtest needs.
    """
    from costopt.cli.errors import print_error
    from costopt.engine.loop import WallClock
    from costopt.market.recorder import record_prices
    from costopt.provider.base import Capability

    clock = WallClock()
    now = clock.now().replace(microsecond=0)
    asked = _regions(provider, regions)
    source = _connect(provider, asked, clock)
    try:
        if Capability.PRICE_HISTORY not in source.capabilities():
            raise click.BadParameter(
                f"provider {provider} does not offer price history", param_hint="'--provider'"
            )
        series = _series(source, asked, words(types), now)
        with _progress(len(series)) as on_part:
            done = record_prices(source, series, out, now, timedelta(days=days), on_part)
    finally:
        source.close()
    for message in dict.fromkeys(part.error for part in done.parts if part.error):
        print_error("note", f"not recorded: {message}")
    _say_written(done, out)


def _regions(provider: str, regions: str | None) -> tuple[str, ...]:
    if regions is not None:
        return words(regions)
    from costopt.catalog import load_catalog

    return tuple(each.name for each in load_catalog().regions() if each.provider == provider)


def _connect(provider: str, regions: Sequence[str], clock: WallClock) -> Provider:
    from costopt.catalog import load_catalog
    from costopt.controller.site import connect_provider

    return connect_provider(provider, clock, {"regions": regions, "machines": load_catalog()})


def _series(
    source: Provider, regions: Sequence[str], types: Sequence[str], now: datetime
) -> tuple[PriceSeriesKey, ...]:
    """Return the series of all regions that respond. Raise the last one's error if none does."""
    from concurrent.futures import ThreadPoolExecutor

    from costopt.cli.errors import print_error
    from costopt.domain.errors import ProviderError

    def ask(region: str) -> tuple[PriceSeriesKey, ...] | ProviderError:
        try:
            return source.price_series(region, types, now)
        except ProviderError as error:
            return error

    with ThreadPoolExecutor(max(1, min(8, len(regions)))) as workers:
        answers = tuple(workers.map(ask, regions))
    failures = [answer for answer in answers if isinstance(answer, ProviderError)]
    if failures and len(failures) == len(answers):
        raise failures[-1]
    for failure in failures:
        print_error("note", f"left out: {failure.message}")
    return tuple(s for answer in answers if not isinstance(answer, ProviderError) for s in answer)


@contextmanager
def _progress(parts: int) -> Iterator[OnPart]:
    """Show a progress bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("recording", total=parts)
        yield lambda part: progress.update(
            task, advance=1, description=f"{part.series.region} {part.series.instance_type}"
        )


def _say_written(done: RecordingResult, out: Path) -> None:
    from costopt.formatting import seconds_text

    pools = done.history.pools.values()
    begins_at, ends_at = min(p.starts_at for p in pools), max(p.ends_at for p in pools)
    changes = sum(len(p.states) for p in pools)
    span = seconds_text((ends_at - begins_at).total_seconds())
    failed = sum(bool(part.error) for part in done.parts)
    left_out = f", {failed} of {len(done.parts)} parts failed" if failed else ""
    click.echo(
        f"wrote {out}: {len(pools)} pools over {span}, {changes} changes{left_out}", err=True
    )


TABLE_SUFFIXES = (".csv", ".csv.gz")


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The values of the options; None if not given."""

    spot_usd_per_hour: float | None
    on_demand_usd_per_hour: float | None
    pool: Pool | None
    instance_type: str | None
    start_at: datetime | None
    nodes_per_unit: int


def import_record(record: Path, given: ImportOptions) -> MarketHistory:
    """Return the history of a table of prices and availability, by its suffix, or of a trace.

    Raise MarketError for a missing or wrong file or an unknown price, UsageError for an option that
    does not go with the record.
    """
    check_record(record, MarketError)
    if record.name.endswith(TABLE_SUFFIXES):
        return _import_table(record, given)
    return _import_trace(record, given)


def _import_table(record: Path, given: ImportOptions) -> MarketHistory:
    from costopt.market.importers import import_wide_csv

    for option, is_given in (
        ("--spot-price", given.spot_usd_per_hour is not None),
        ("--pool", given.pool is not None),
        ("--start", given.start_at is not None),
        ("--nodes-per-unit", given.nodes_per_unit != 1),
    ):
        if is_given:
            raise click.UsageError(f"{option} is for traces; {record.name} says it itself")
    return import_wide_csv(
        record,
        on_demand_usd_per_hour=lambda pool: _usd_per_hour(
            given.on_demand_usd_per_hour, record, pool, "--on-demand-price"
        ),
        instance_type=given.instance_type,
    )


def _import_trace(record: Path, given: ImportOptions) -> MarketHistory:
    from costopt.market.importers import import_spot_trace

    spot_usd, on_demand_usd = _trace_prices(record, given)
    return import_spot_trace(
        record,
        spot_usd_per_hour=spot_usd,
        on_demand_usd_per_hour=on_demand_usd,
        pool=given.pool,
        start_at=given.start_at,
        instance_type=given.instance_type,
        nodes_per_unit=given.nodes_per_unit,
    )


def _trace_prices(record: Path, given: ImportOptions) -> tuple[float, float]:
    """Return the spot and on-demand price: as given, otherwise the catalogue's for the trace's
    place."""
    spot_usd, on_demand_usd = given.spot_usd_per_hour, given.on_demand_usd_per_hour
    if spot_usd is not None and on_demand_usd is not None:
        return spot_usd, on_demand_usd
    spot = given.pool or _place(record, given.instance_type)
    on_demand = spot.with_capacity_type(CapacityType.ON_DEMAND)
    return (
        _usd_per_hour(spot_usd, record, spot, "--spot-price"),
        _usd_per_hour(on_demand_usd, record, on_demand, "--on-demand-price"),
    )


def _place(record: Path, instance_type: str | None) -> Pool:
    from costopt.catalog import find_traits
    from costopt.market.importers import TraceFileName, instance_type_of

    named = TraceFileName.parse(record.name)
    kind = instance_type or (
        instance_type_of(named.provider, named.gpu, named.gpu_count) if named else None
    )
    if named is None or kind is None:
        raise MarketError(
            f"spot trace {record.name}: the name does not say which machine it is of",
            hint="give --spot-price, --on-demand-price and --pool or --instance-type",
        )
    region = find_traits(named.provider).region_of_zone(named.zone)
    return Pool(named.provider, region, named.zone, kind, CapacityType.SPOT)


def _usd_per_hour(given_usd: float | None, record: Path, pool: Pool, option: str) -> float:
    """Return the price given, otherwise the catalogue's of the pool."""
    from costopt.catalog import load_catalog

    if given_usd is not None:
        return given_usd
    known, key = load_catalog(), (pool.provider, pool.region, pool.instance_type)
    if pool.capacity_type is CapacityType.SPOT:
        price = known.spot_price_usd_per_hour(*key)
    else:
        price = known.list_price_usd_per_hour(*key)
    if price is None:
        raise MarketError(
            f"{record.name}: the catalogue has no {pool.capacity_type.value} price of "
            f"{pool.instance_type} in {pool.region}",
            hint=f"give {option}",
        )
    return price.value
