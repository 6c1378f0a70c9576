"""`costopt market`: generates, shows and fills market histories; imports and records are added to
it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.catalog import check_region
from costopt.cli.market_record import record
from costopt.cli.options import (
    DAY_S,
    MarketFile,
    Number,
    complete_gpu,
    complete_market,
    instant,
    output_option,
    print_table,
)
from costopt.cli.options import pool as pool_option
from costopt.domain.errors import MarketError
from costopt.domain.estimate import Estimate
from costopt.domain.history import MarketHistory
from costopt.domain.market import Pool
from costopt.formatting import number_text, percent_text, pool_text, seconds_text, usd_text
from costopt.render.table import Column, Row, Table

if TYPE_CHECKING:
    from costopt.market.statistics import PoolStatistics


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True,
              metavar="FILE", help="The parquet file to write; may be the same.")  # fmt: skip
@click.option("--profile", default="typical", help="calm, typical or harsh.")
@click.option("--seed", type=int, default=0, help="Another seed gives other capacity.")
def fill(file: Path, out: Path, profile: str, seed: int) -> None:
    """Model the capacity that a record of prices leaves open.

    Spot pools whose price was recorded and whose capacity was not get that of a generated market,
    so that backtest can replay the record; what was observed stays. The file says what is modelled.
    """
    from costopt.market.generator import fill_capacity
    from costopt.market.history_file import read_history, write_history

    history = fill_capacity(read_history(file), seed=seed, profile=profile)
    write_history(history, out)
    click.echo(f"wrote {out}: capacity modelled, profile {profile}, seed {seed}", err=True)


ZONE_LETTERS = "abcdef"

out_option = click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="The parquet file to write.",
)


@click.group()
def market() -> None:
    """Generate, record, import and show market histories.

    A market history holds the price and the capacity of pools over time. plan reads prices and
    hazards from one, backtest and the embedded provider replay it.
    """


@market.command()
@out_option
@click.option("--gpu", "gpus", multiple=True, metavar="MODEL", shell_complete=complete_gpu,
              help="GPU models, such as T4.")  # fmt: skip
@click.option("--instance-type", "instance_types", multiple=True, metavar="NAME",
              help="Instance types.")  # fmt: skip
@click.option("--provider", metavar="NAME", help="Only this provider.")
@click.option("--region", "regions", multiple=True, metavar="NAME", help="Only these regions.")
@click.option("--zones", type=click.IntRange(1, len(ZONE_LETTERS)), default=3,
              help="Zones in each region.")  # fmt: skip
@click.option("--hours", type=Number(0, 24 * 366, min_open=True), default=168.0,
              help="Length of the history.")  # fmt: skip
@click.option("--tick", type=Number(10, DAY_S), default=300.0,
              help="Seconds between two samples.")  # fmt: skip
@click.option("--profile", default="typical", help="calm, typical or harsh.")
@click.option("--seed", type=int, default=0, help="Another seed gives another market.")
@click.option(
    "--start", callback=instant, metavar="TIME", help="Start time; default: 2024-01-01T00:00:00Z."
)
def generate(
    out: Path, gpus: tuple[str, ...], instance_types: tuple[str, ...], provider: str | None,
    regions: tuple[str, ...], zones: int, hours: float, tick: float, profile: str, seed: int,
    start: datetime | None,
) -> None:  # fmt: skip
    """Generate a market history around the catalogue's prices.

    Each region gets --zones zones with a spot and an on-demand pool per instance type. The same
    options give the same history.
    """
    from costopt.market.generator import DEFAULT_START_AT, generate_market
    from costopt.market.history_file import write_history

    if not gpus and not instance_types:
        raise click.UsageError("say which machines: --gpu or --instance-type")
    prices = _catalogue_prices(gpus, instance_types, provider, regions, zones)
    history = generate_market(
        prices,
        hours=hours,
        seed=seed,
        profile=profile,
        start_at=start or DEFAULT_START_AT,
        tick_s=tick,
    )
    write_history(history, out)
    _say_written(history, out)


@market.command(name="import")
@click.argument("records", nargs=-1, required=True, metavar="RECORD...",
                type=click.Path(dir_okay=False, path_type=Path))  # fmt: skip
@out_option
@click.option("--spot-price", "spot_usd_per_hour", type=float, metavar="USD",
              help="Dollars per node-hour on spot; default: the catalogue's.")  # fmt: skip
@click.option("--on-demand-price", "on_demand_usd_per_hour", type=float, metavar="USD",
              help="Dollars per node-hour on demand; default: the catalogue's.")  # fmt: skip
@click.option("--pool", callback=pool_option, metavar="POOL",
              help="As printed by market show; default: from the file's name.")  # fmt: skip
@click.option("--instance-type", metavar="NAME",
              help="Default: by the GPU and count of the file's or column's name.")  # fmt: skip
@click.option(
    "--start",
    "start_at",
    callback=instant,
    metavar="TIME",
    help="Start time; default: from the file's name.",
)
@click.option("--nodes-per-unit", type=click.IntRange(min=1), default=1,
              help="Nodes that one unit of the trace represents.")  # fmt: skip
def import_(
    records: tuple[Path, ...], out: Path, spot_usd_per_hour: float | None,
    on_demand_usd_per_hour: float | None, pool: Pool | None, instance_type: str | None,
    start_at: datetime | None, nodes_per_unit: int,
) -> None:  # fmt: skip
    """Import public spot records as a market history.

    A RECORD is a trace or a table. A trace is the JSON of the spot-traces format, with
    metadata.gap_seconds and data; it holds no prices, so they come from the options or, where
    these are missing, from the catalogue. A table is a .csv or .csv.gz file with a column
    time_utc_approx and, for each pool, columns such as us-east-1a_v100_1_avail and
    us-east-1a_v100_1_price; of the options it takes --on-demand-price and --instance-type. All
    records together become one history.
    """
    from costopt.cli.market_record import ImportOptions, import_record
    from costopt.market.history_file import merge_histories, write_history

    if pool is not None and len(records) > 1:
        raise click.UsageError("--pool is for one trace; import several one by one")
    given = ImportOptions(
        spot_usd_per_hour, on_demand_usd_per_hour, pool, instance_type, start_at, nodes_per_unit
    )
    histories = [import_record(record, given) for record in records]
    history = histories[0] if len(histories) == 1 else merge_histories(out.stem, histories)
    write_history(history, out)
    _say_written(history, out)


@market.command(name="show")
@click.argument("file", metavar="NAME|FILE", type=MarketFile(),
                shell_complete=complete_market)  # fmt: skip
@output_option
def show_(file: Path, output: str) -> None:
    """Show what a market history holds, such as sample, which costopt ships.

    For each pool: how much of the record was observed, the share of it with capacity, the
    interruptions per hour up, with 90 % intervals, and the prices.
    """
    from costopt.market.history_file import read_history
    from costopt.market.statistics import history_statistics

    history = read_history(file)
    rows = [_pool_row(each) for each in history_statistics(history).values()]
    grid = (
        "event data" if history.tick_s is None else f"a sample per {seconds_text(history.tick_s)}"
    )
    table = Table(
        schema="costopt.market/1",
        title=f"{history.name}: {len(rows)} pools, {history.starts_at:%Y-%m-%d %H:%MZ} to "
        f"{history.ends_at:%Y-%m-%d %H:%MZ}, {grid}",
        columns=_POOL_COLUMNS,
        rows=rows,
        facts={
            "name": history.name,
            "source": history.source,
            "tick_s": history.tick_s,
            "starts_at": history.starts_at,
            "ends_at": history.ends_at,
        },
        notes=(f"Source: {history.source}.",),
    )
    print_table(table, output)


market.add_command(record)
market.add_command(fill)


def _say_written(history: MarketHistory, out: Path) -> None:
    hours = seconds_text((history.ends_at - history.starts_at).total_seconds())
    click.echo(f"wrote {out}: {len(history.pools)} pools over {hours}", err=True)


def _catalogue_prices(
    gpus: tuple[str, ...], instance_types: tuple[str, ...], provider: str | None,
    regions: tuple[str, ...], zones: int,
) -> dict[Pool, float]:  # fmt: skip
    """Return dollars per node-hour by requested pool, spot and on-demand."""
    from costopt.catalog import load_catalog

    known = load_catalog()
    for region in regions:
        check_region(known, region, provider)
    machines = {m for gpu in gpus for m in known.find(gpu=gpu, provider=provider)}
    machines |= {m for m in known.find(provider=provider) if m.name in instance_types}
    missing = sorted(set(instance_types) - {machine.name for machine in machines})
    if missing:
        known.get_instance_type(provider or known.providers()[0], missing[0])
    asked = {(machine.provider, machine.name) for machine in machines}
    prices = {
        pool: offer.price_usd_per_hour.value
        for offer in known.offers()
        if (offer.pool.provider, offer.pool.instance_type) in asked
        and offer.price_usd_per_hour is not None
        and (not regions or offer.pool.region in regions)
        for pool in _zones_of(offer.pool, zones)
    }
    if not prices:
        raise MarketError(
            f"the catalogue has no price of {', '.join(sorted(name for _, name in asked))} in "
            f"{', '.join(regions) or 'any region'}",
            hint="costopt catalog --gpu MODEL shows where they are for rent",
        )
    return prices


def _zones_of(pool: Pool, zones: int) -> list[Pool]:
    """Return the first zones of a region, named as the provider does."""
    from costopt.catalog import find_traits

    traits = find_traits(pool.provider)
    return [
        Pool(pool.provider, pool.region, traits.zone(pool.region, letter), pool.instance_type,
             pool.capacity_type)
        for letter in ZONE_LETTERS[:zones]
    ]  # fmt: skip


def _pool_row(of: PoolStatistics) -> Row:
    return {
        "pool": str(of.pool),
        "recorded_s": of.recorded_s,
        "coverage": of.coverage,
        **_interval("availability", of.availability),
        "interruptions": of.interruptions,
        **_interval("hazard_per_hour", of.hazard_per_hour),
        "mean_up_s": of.mean_up_s,
        "min_usd_per_hour": of.min_usd_per_hour,
        "mean_usd_per_hour": of.mean_usd_per_hour,
        "max_usd_per_hour": of.max_usd_per_hour,
    }


def _interval(name: str, estimate: Estimate | None) -> Row:
    return {
        name: estimate.value if estimate else None,
        f"{name}_low": estimate.low if estimate else None,
        f"{name}_high": estimate.high if estimate else None,
    }


_POOL_COLUMNS = (
    Column("pool", "Pool", pool_text),
    Column("recorded_s", "Recorded", seconds_text, right=True, rank=6),
    Column("coverage", "Observed", percent_text, right=True, rank=7),
    Column("availability", "Available", percent_text, right=True),
    Column("availability_low", "Available low", percent_text, right=True, rank=5),
    Column("availability_high", "Available high", percent_text, right=True, rank=5),
    Column("interruptions", "Interruptions", right=True, rank=3),
    Column("hazard_per_hour", "Interruptions/h", number_text, right=True),
    Column("hazard_per_hour_low", "Interruptions/h low", number_text, right=True, rank=4),
    Column("hazard_per_hour_high", "Interruptions/h high", number_text, right=True, rank=4),
    Column("mean_up_s", "Mean up", seconds_text, right=True, rank=2),
    Column("min_usd_per_hour", "$/h min", usd_text, right=True, rank=3),
    Column("mean_usd_per_hour", "$/h mean", usd_text, right=True),
    Column("max_usd_per_hour", "$/h max", usd_text, right=True, rank=3),
)
