"""`costopt catalog`: lists GPU instance types with their prices, and regions; refreshes prices."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from costopt.cli.catalog_update import update
from costopt.cli.options import complete_gpu, output_option, print_table
from costopt.domain.errors import CatalogError
from costopt.domain.estimate import Estimate
from costopt.domain.market import CapacityType, InstanceType, Pool
from costopt.formatting import number_text, seconds_text, usd_text
from costopt.render.table import Column, Row, Table

if TYPE_CHECKING:
    from costopt.catalog import Catalog
    from costopt.energy import NodePowerModel


@click.group(invoke_without_command=True)
@click.option("--gpu", metavar="MODEL", shell_complete=complete_gpu,
              help="Only this GPU, such as H100 or A100-SXM4-80GB.")  # fmt: skip
@click.option("--provider", metavar="NAME", help="Only this provider, such as aws.")
@click.option("--region", metavar="NAME", help="Prices of this region instead of the cheapest.")
@click.option("--regions", is_flag=True, help="List regions with their PUE and carbon intensity.")
@output_option
@click.pass_context
def catalog(
    context: click.Context,
    gpu: str | None,
    provider: str | None,
    region: str | None,
    regions: bool,
    output: str,
) -> None:
    """List GPU instance types and regions.

    Watts are modelled for training and at idle, at the node's plug. Prices are per node-hour: of
    the cheapest region, unless --region names one. They are those of the built-in tables, or of
    the public lists that `costopt catalog update` fetches, whichever are newer. They are for
    planning, never for launching; the date says how old they are.
    """
    if context.invoked_subcommand is not None:
        return
    from costopt.catalog import load_catalog

    known = load_catalog()
    if region is not None:
        check_region(known, region, provider)
    if regions:
        print_table(_region_table(known, provider, region), output)
        return
    machines = known.find(gpu=gpu, provider=provider)
    print_table(_machine_table(known, machines, region), output)


def check_region(known: Catalog, region: str, provider: str | None) -> None:
    """Raise CatalogError for a region of which the catalogue holds nothing."""
    from costopt.spec.fields import did_you_mean

    names = {each.name for each in known.regions() if provider in (None, each.provider)}
    names |= {
        offer.pool.region for offer in known.offers() if provider in (None, offer.pool.provider)
    }
    if region not in names:
        near = did_you_mean(region, sorted(names))
        raise CatalogError(
            f"no region {region!r} in the catalogue{near}",
            hint="costopt catalog --regions lists them all",
        )


def _machine_table(known: Catalog, machines: Iterable[InstanceType], region: str | None) -> Table:
    from costopt.energy import NodePowerModel

    model = NodePowerModel(known)
    quotes = _cheapest(known, region)
    rows = [_machine_row(machine, quotes, model) for machine in machines]
    if region is not None:
        rows = [row for row in rows if row["on_demand_usd_per_hour"] or row["spot_usd_per_hour"]]
    where = f"in {region}" if region else "of the cheapest region of each"
    return Table(
        schema="costopt.catalog/1",
        title=f"{len(rows)} GPU instance types",
        columns=_MACHINE_COLUMNS,
        rows=rows,
        notes=(f"Prices per node-hour {where}; – is unknown. Watts are modelled.",),
    )


Quotes = dict[tuple[str, str, CapacityType], tuple[Pool, Estimate]]


def _cheapest(known: Catalog, region: str | None) -> Quotes:
    """Return the lowest price by instance type and capacity type."""
    from costopt.catalog.price_cache import load_listed_offers

    quotes: Quotes = {}
    for offer in load_listed_offers(known).offers:
        pool, price = offer.pool, offer.price_usd_per_hour
        if price is None or region not in (None, pool.region):
            continue
        key = (pool.provider, pool.instance_type, pool.capacity_type)
        if key not in quotes or price.value < quotes[key][1].value:
            quotes[key] = (pool, price)
    return quotes


def _machine_row(machine: InstanceType, quotes: Quotes, model: NodePowerModel) -> Row:
    on_demand = quotes.get((machine.provider, machine.name, CapacityType.ON_DEMAND))
    spot = quotes.get((machine.provider, machine.name, CapacityType.SPOT))
    quoted = on_demand or spot
    power = model.node_power(quoted[0] if quoted else _nowhere(machine))
    mfu = machine.gpu.relative_mfu
    return {
        "provider": machine.provider,
        "instance_type": machine.name,
        "gpu_model": machine.gpu.model,
        "gpu_count": machine.gpu_count,
        "gpu_memory_gib": machine.gpu.memory_gib,
        "gpu_peak_tflops": machine.gpu.peak_tflops,
        "gpu_peak_precision": machine.gpu.peak_precision,
        "gpu_relative_mfu": mfu,
        "gpu_relative_mfu_source": None if mfu is None else mfu.source,
        "vcpus": machine.vcpus,
        "memory_gib": machine.memory_gib,
        "network_gbps": machine.network_gbps,
        "busy_w": power.busy_w if power else None,
        "idle_w": power.idle_w if power else None,
        "power_basis": power.basis if power else None,
        "power_source": power.source if power else None,
        **_quote("on_demand", on_demand),
        **_quote("spot", spot),
        "source": machine.source,
    }


def _quote(name: str, quoted: tuple[Pool, Estimate] | None) -> Row:
    pool, price = quoted or (None, None)
    return {
        f"{name}_usd_per_hour": price.value if price else None,
        f"{name}_region": pool.region if pool else None,
        f"{name}_observed_at": price.observed_at if price else None,
        f"{name}_basis": price.basis if price else None,
        f"{name}_source": price.source if price else None,
    }


def _nowhere(machine: InstanceType) -> Pool:
    """Return a pool without a region, for the power at the plug of a type that is not for rent."""
    return Pool(machine.provider, "-", "-", machine.name, CapacityType.ON_DEMAND)


def _age(observed_at: datetime | None) -> str:
    return seconds_text((datetime.now(UTC) - observed_at).total_seconds() if observed_at else None)


_MACHINE_COLUMNS = (
    Column("provider", "Provider"),
    Column("instance_type", "Instance type"),
    Column("gpu_model", "GPU model"),
    Column("gpu_count", "GPUs", right=True),
    Column("gpu_memory_gib", "GiB/GPU", number_text, right=True, rank=3),
    Column("gpu_peak_tflops", "TFLOPS/GPU", number_text, right=True, rank=6),
    Column("gpu_peak_precision", "TFLOPS of", rank=7),
    Column("vcpus", "vCPUs", right=True, rank=7),
    Column("memory_gib", "GiB", number_text, right=True, rank=7),
    Column("network_gbps", "Gbit/s", number_text, right=True, rank=8),
    Column("busy_w", "W busy", number_text, right=True, rank=2),
    Column("idle_w", "W idle", number_text, right=True, rank=5),
    Column("on_demand_usd_per_hour", "On-demand $/h", usd_text, right=True),
    Column("on_demand_region", "On demand in", rank=4),
    Column("on_demand_observed_at", "On-demand age", _age, right=True, rank=3),
    Column("spot_usd_per_hour", "Spot $/h", usd_text, right=True),
    Column("spot_region", "Spot in", rank=4),
    Column("spot_observed_at", "Spot age", _age, right=True, rank=1),
    Column("gpu_relative_mfu", "MFU over that of H100", detail=True, interval=True),
    Column("gpu_relative_mfu_source", "Source of that", detail=True),
    Column("on_demand_basis", "On-demand basis", detail=True),
    Column("on_demand_source", "On-demand source", detail=True),
    Column("spot_basis", "Spot basis", detail=True),
    Column("spot_source", "Spot source", detail=True),
    Column("power_basis", "Power basis", detail=True),
    Column("power_source", "Power source", detail=True),
    Column("source", "Source", detail=True),
)


def _region_table(known: Catalog, provider: str | None, region: str | None) -> Table:
    if provider is not None:
        known.find(provider=provider)
    rows = [
        {
            "provider": each.provider,
            "region": each.name,
            "pue": each.pue,
            "average_gco2e_per_kwh": each.average_gco2e_per_kwh,
            "marginal_gco2e_per_kwh": each.marginal_gco2e_per_kwh,
            "electricity_maps_zone": each.electricity_maps_zone,
            "year": each.year,
            "source": each.source,
        }
        for each in known.regions()
        if provider in (None, each.provider) and region in (None, each.name)
    ]
    columns = (
        Column("provider", "Provider"),
        Column("region", "Region"),
        Column("pue", "PUE", right=True),
        Column("average_gco2e_per_kwh", "g/kWh average", number_text, right=True),
        Column("marginal_gco2e_per_kwh", "g/kWh marginal", number_text, right=True),
        Column("electricity_maps_zone", "Grid zone"),
        Column("year", "Year", right=True),
        Column("source", "Source", detail=True),
    )
    notes = ("Annual means of gCO2e per kWh; – is unknown.",)
    return Table("costopt.regions/1", f"{len(rows)} regions", columns, rows, notes=notes)


catalog.add_command(update)
