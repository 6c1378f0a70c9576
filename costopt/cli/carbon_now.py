"""`costopt carbon now`: the live carbon intensity of regions, with its age and the next hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from costopt.cli.errors import print_error
from costopt.cli.options import account_option, output_option, print_table
from costopt.domain.account import Account, CarbonSource, CarbonSourceName
from costopt.domain.errors import StaleDataError
from costopt.formatting import number_text, seconds_text
from costopt.render.table import Column, Row, Table

if TYPE_CHECKING:
    from costopt.energy.live import LiveCarbon

AHEAD_HOURS = 24
SHOWN_HOURS = (1, 3, 6, 12, 24)


@click.command()
@click.option("--region", "regions", multiple=True, metavar="PROVIDER/REGION",
              help="A region, such as aws/eu-west-2; may be repeated. Default: those that the "
              "account's providers name, or all of Great Britain's.")  # fmt: skip
@account_option
@output_option
def now(regions: tuple[str, ...], account: str | None, output: str) -> None:
    """Ask for the carbon intensity of regions now and in the next hours.

    The account file names the service, as carbon: {source: electricity-maps, key_file: PATH}.
    Without one, the British carbon-intensity API is asked, which needs no key and serves Great
    Britain alone. An intensity of more than two hours ago is not shown as the present one. Each
    zone is asked for once an hour; what is known meanwhile is in the cache, with its age.

    Exits with 5 if no region has a present intensity.
    """
    from costopt.controller.live_carbon import connect_live_carbon
    from costopt.planning.request import load_account

    shared = load_account(account)
    if shared.carbon is None:
        name = CarbonSourceName.GB_CARBON_INTENSITY
        shared = Account(providers=shared.providers, carbon=CarbonSource(name, name.url))
    live = connect_live_carbon(shared)
    chosen = _regions(regions, shared, live)
    at = datetime.now(UTC)
    live.prepare(chosen, at)
    rows = [_row(live, region, at) for region in chosen]
    print_table(_table(live, rows, at), output)
    unserved = [str(row["region"]) for row in rows if row["zone"] is None]
    if unserved:
        print_error("note", f"{live.name} does not serve {', '.join(unserved)}")
    for note in live.notes(at):
        print_error("note", note)
    if all(row["gco2e_per_kwh"] is None for row in rows):
        raise StaleDataError(
            f"{live.name} has no present carbon intensity of any of these regions",
            hint="the notes say why; annual means count meanwhile",
        )


def _regions(named: tuple[str, ...], account: Account, live: LiveCarbon) -> tuple[str, ...]:
    """Return the regions to show. Raise UsageError for unknown ones, or if there are none."""
    from costopt.catalog import load_catalog
    from costopt.spec.fields import did_you_mean

    known = [f"{region.provider}/{region.name}" for region in load_catalog().regions()]
    for name in named:
        if name not in known:
            raise click.BadParameter(
                f"there is no region {name!r}{did_you_mean(name, known)}", param_hint="'--region'"
            )
    if named:
        return tuple(dict.fromkeys(named))
    of_account = [
        f"{provider}/{region}"
        for provider, options in account.providers.items()
        if isinstance(regions := options.get("regions"), list)
        for region in regions
    ]
    if of_account:
        return tuple(dict.fromkeys(of_account))
    if live.name == CarbonSourceName.GB_CARBON_INTENSITY.value:
        return tuple(name for name in known if live.zone(name) is not None)
    raise click.UsageError("name regions with --region: the account's providers name none")


def _row(live: LiveCarbon, name: str, at: datetime) -> Row:
    present = live.present(name, at)
    series = live.forecast([name], at, at + timedelta(hours=AHEAD_HOURS + 1)).series.get(name)
    ahead = {
        hours: None if series is None else series.value(at + timedelta(hours=hours))
        for hours in range(1, AHEAD_HOURS + 1)
    }
    return {
        "region": name,
        "zone": live.zone(name),
        "gco2e_per_kwh": None if present is None else present.gco2e_per_kwh,
        "carbon_signal": live.carbon_signal,
        "hour_at": None if present is None else present.hour_at,
        "age_s": None if present is None else (at - present.hour_at).total_seconds(),
        "provisional": None if present is None else not present.final,
        **{f"in_{hours}_h": ahead[hours] for hours in SHOWN_HOURS},
        "source": live.name,
        "forecast_gco2e_per_kwh": list(ahead.values()) if series is not None else None,
        "forecast_source": None if series is None else series.source,
    }


def _table(live: LiveCarbon, rows: list[Row], at: datetime) -> Table:
    columns = (
        Column("region", "Region"),
        Column("zone", "Zone"),
        Column("gco2e_per_kwh", "g/kWh now", number_text, right=True),
        Column("carbon_signal", "Signal", rank=2),
        Column("age_s", "Age", seconds_text, right=True),
        *(Column(f"in_{h}_h", f"in {h} h", number_text, right=True) for h in SHOWN_HOURS),
        Column("source", "Source", rank=1),
        Column("hour_at", "Hour", detail=True),
        Column("provisional", "Provisional", detail=True),
        Column("forecast_gco2e_per_kwh", "Next hours", detail=True),
        Column("forecast_source", "Forecast", detail=True),
    )
    return Table(
        schema="costopt.carbon-now/1",
        title=f"{live.carbon_signal.value} carbon intensity at {at:%Y-%m-%d %H:%MZ}, gCO2e/kWh",
        columns=columns,
        rows=rows,
        facts={"at": at, "source": live.name, "notes": list(live.notes(at))},
        notes=(f"Source: {live.name}. Age: since the beginning of the hour it is of.",),
    )
