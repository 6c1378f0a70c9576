"""A workload as tables: tenants, sizes, and days as bars of text."""

from __future__ import annotations

from collections.abc import Sequence

from costopt.formatting import number_text, percent_text, seconds_text
from costopt.render.table import Column, Table, records
from costopt.workload.statistics import WorkloadPart, describe_sizes, describe_tenants
from costopt.workload.workload import Workload

_BARS = "▁▂▃▄▅▆▇█"
MAX_BARS = 28


def _count(value: int) -> str:
    return f"{value:,}"


def bars(values: Sequence[float]) -> str:
    """Return a bar of text per value, or per group of values where there are many."""
    width = -(-len(values) // MAX_BARS)
    sums = [sum(values[start : start + width]) for start in range(0, len(values), width)]
    most = max(sums, default=0)
    if not most:
        return " " * len(sums)
    return "".join(
        _BARS[min(len(_BARS) - 1, int(each / most * len(_BARS)))] if each else " " for each in sums
    )


_FIGURES = (
    Column("jobs", "Jobs", _count, right=True),
    Column("single_gpu_share", "1 GPU", percent_text, right=True),
    Column("largest_gpus", "Largest", _count, right=True, rank=2),
    Column("p50_s", "P50", seconds_text, right=True),
    Column("p95_s", "P95", seconds_text, right=True, rank=3),
    Column("gpu_hours", "GPU-hours", number_text, right=True),
    Column("mean_gpus", "Mean GPUs", number_text, right=True),
)
_PICTURES = (
    Column("daily_jobs", "Arrivals by day", bars, rank=1),
    Column("daily_gpus", "Load by day", bars, rank=4),
)


def workload_table(workload: Workload) -> Table:
    """Return a row per tenant and one of all, with the sizes as a further table."""
    first, last = workload.at(workload.submit_s[0]), workload.at(workload.submit_s[-1])
    sizes = describe_sizes(workload)
    declared = int(workload.declared.sum())
    return Table(
        schema="costopt.workload/1",
        title=f"{workload.title}: {len(workload.jobs):,} jobs, {first:%Y-%m-%d %H:%MZ} to "
        f"{last:%Y-%m-%d %H:%MZ}",
        columns=(Column("name", "Tenant"), *_FIGURES, *_PICTURES),
        rows=describe_tenants(workload),
        facts={
            "title": workload.title,
            "source": workload.source,
            "starts_at": workload.starts_at,
            "first_submit_at": first,
            "last_submit_at": last,
            "work_declared": declared,
            "sizes": records(sizes, " ".join(WorkloadPart.__dataclass_fields__)),
        },
        notes=(
            f"Source: {workload.source}. P50 and P95 are durations; load is the GPU-time of what "
            f"was submitted on a day. {declared:,} jobs declare their work.",
        ),
        more=(Table("", "Sizes", (Column("name", "GPUs"), *_FIGURES), sizes),),
    )
