"""Dollars of disks and kept checkpoints that a plan contains, as a sentence and for programs."""

from __future__ import annotations

from collections.abc import Iterator

from costopt.catalog import load_catalog
from costopt.domain.account import Account
from costopt.domain.checkpoint_interval import checkpoint_interval_s
from costopt.domain.job import Job
from costopt.domain.plan import Plan
from costopt.domain.storage import KEPT_CHECKPOINTS
from costopt.domain.transfers import checkpoint_storage, volume_usd_per_hour, with_root_volumes
from costopt.formatting import percent_text, usd_text
from costopt.render.table import Row

MIN_SHARE = 0.005
"""Of a plan's dollars, below which storage is not worth a line."""

TYPICAL_HAZARD_PER_HOUR = 0.05
"""For the interval between saves, of which the requests depend, where the file names none."""


def storage_row(made: Plan, job: Job, account: Account) -> Row:
    """Return the figures of ``_storage`` for JSON."""
    usd, unknown = _storage(made, job, account)
    return {"usd": usd, "unknown": unknown}


def storage_note(made: Plan, job: Job, account: Account, plan_usd: float) -> Iterator[str]:
    """Yield a line where storage matters to a plan of ``plan_usd``, or a price is unknown."""
    usd, unknown = _storage(made, job, account)
    if unknown:
        yield f"Not counted, as their price is unknown: {', '.join(unknown)}."
    if usd > MIN_SHARE * plan_usd > 0:
        share = percent_text(usd / plan_usd)
        yield f"Disks and storage: {usd_text(usd)} of it, {share} (list prices)."


def _storage(made: Plan, job: Job, account: Account) -> tuple[float, list[str]]:
    """Return the part of the plan's dollars that is of root volumes and of checkpoints in a store,
    and what is not counted because its price is unknown."""
    prices = with_root_volumes(load_catalog().transfer, account.providers)
    usd, unknown = 0.0, set[str]()
    stored = checkpoint_storage(job, job.checkpoint.size_gib, prices)
    if stored is None:
        unknown.add("checkpoints" if job.checkpoint.region else "checkpoints (no region given)")
    save_usd, kept_usd = stored or (0.0, 0.0)
    interval_s = job.checkpoint.interval_s or checkpoint_interval_s(
        hazard_per_hour=TYPICAL_HAZARD_PER_HOUR, blocking_save_s=job.checkpoint.save_s
    )
    for each in made.allocations:
        if each.job != job.name:
            continue
        hours = (each.end_at - each.start_at).total_seconds() / 3600
        volume_usd = volume_usd_per_hour(each.pool, prices)
        if volume_usd is None:
            unknown.add(f"root volumes in {each.pool.provider}/{each.pool.region}")
        usd += each.node_hours * (volume_usd or 0.0)
        usd += hours * (KEPT_CHECKPOINTS * kept_usd + save_usd * 3600 / interval_s)
    return usd, sorted(unknown)
