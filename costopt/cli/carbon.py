"""`costopt carbon`: imports and shows carbon histories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, quantiles

import click

from costopt.cli.carbon_fill import fill
from costopt.cli.carbon_now import now
from costopt.cli.options import check_record, output_option, print_table
from costopt.domain.errors import SignalError
from costopt.domain.policy import CarbonSignal
from costopt.formatting import number_text, percent_text, seconds_text
from costopt.render.table import Column, Row, Table


@click.group()
def carbon() -> None:
    """Import and show carbon histories; ask for live intensities.

    A carbon history holds the intensity of grid zones hour by hour. Plans make forecasts of it,
    and runs and backtests count CO2e by it; without one, the annual mean of each region counts
    at all hours.
    """


@carbon.command(name="import")
@click.argument("records", metavar="RECORD...", nargs=-1, required=True,
                type=click.Path(dir_okay=False, path_type=Path))  # fmt: skip
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True,
              metavar="FILE", help="The parquet file to write.")  # fmt: skip
@click.option("--signal", type=click.Choice([each.value for each in CarbonSignal]),
              default=CarbonSignal.AVERAGE.value, help="What the intensities are.")  # fmt: skip
def import_(records: tuple[Path, ...], out: Path, signal: str) -> None:
    """Import intensities as a carbon history.

    A RECORD is a .csv or .csv.gz file: a column of hours in UTC, then one per grid zone in
    gCO2e/kWh, named as Electricity Maps names zones (costopt catalog --regions lists each
    region's). Or it is a file of a zone and year as Electricity Maps publishes them, whose
    life-cycle intensities count. Several become one history. Intervals shorter than an hour are
    averaged over it. Empty cells, and hours that are not complete, stay gaps.
    """
    from costopt.energy.carbon_csv import import_carbon_csv
    from costopt.energy.carbon_files import write_carbon

    for record in records:
        check_record(record, SignalError)
    history = import_carbon_csv(records, CarbonSignal(signal))
    write_carbon(history, out)
    span = seconds_text(history.hours * 3600)
    click.echo(f"wrote {out}: {len(history.zones)} grid zones over {span}", err=True)


@carbon.command(name="show")
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@output_option
def show_(file: Path, output: str) -> None:
    """Show what a carbon history holds.

    For each grid zone: the share of hours that were recorded, and their mean and spread.
    """
    from costopt.energy.carbon_files import read_carbon

    history = read_carbon(file)
    table = Table(
        schema="costopt.carbon/1",
        title=f"{len(history.zones)} grid zones, {history.starts_at:%Y-%m-%d %H:%MZ} to "
        f"{history.ends_at:%Y-%m-%d %H:%MZ}, {history.carbon_signal.value} intensities",
        columns=_COLUMNS,
        rows=[_row(zone, values) for zone, values in history.zones.items()],
        facts={
            "carbon_signal": history.carbon_signal,
            "source": history.source,
            "starts_at": history.starts_at,
            "ends_at": history.ends_at,
        },
        notes=(f"Source: {history.source}.",),
    )
    print_table(table, output)


def _row(zone: str, values: Sequence[float | None]) -> Row:
    known = [value for value in values if value is not None]
    spread = quantiles(known, n=20, method="inclusive") if len(known) > 1 else [None]
    return {
        "zone": zone,
        "coverage": len(known) / len(values),
        "p5_gco2e_per_kwh": spread[0],
        "mean_gco2e_per_kwh": fmean(known) if known else None,
        "p95_gco2e_per_kwh": spread[-1],
    }


_COLUMNS = (
    Column("zone", "Grid zone"),
    Column("coverage", "Recorded", percent_text, right=True),
    Column("p5_gco2e_per_kwh", "gCO2e/kWh P5", number_text, right=True),
    Column("mean_gco2e_per_kwh", "gCO2e/kWh mean", number_text, right=True),
    Column("p95_gco2e_per_kwh", "gCO2e/kWh P95", number_text, right=True),
)


carbon.add_command(now)
carbon.add_command(fill)
