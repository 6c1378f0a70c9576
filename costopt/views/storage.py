"""Dollars of disks and kept checkpoints that a plan contains, as a sentence and for programs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from costopt.catalog import load_catalog
from costopt.domain.account import Account
from costopt.domain.job import Job
from costopt.domain.plan import Allocation, Forecast, Plan
from costopt.domain.storage import HOURS_PER_MONTH, KEPT_CHECKPOINTS
from costopt.domain.transfers import (
    checkpoint_storage,
    mean_kept_checkpoints,
    milestone_count,
    save_transfer,
    volume_usd_per_hour,
    with_root_volumes,
)
from costopt.formatting import percent_text, pluralize, seconds_text, usd_text
from costopt.render.table import Row
from costopt.strategies.gang_options import save_interval_s

MIN_SHARE = 0.005
"""Of a plan's dollars, below which storage is not worth a line."""

TYPICAL_HAZARD_PER_HOUR = 0.05
"""For the interval between saves, of which the requests depend, where the file names none."""


def storage_row(made: Plan, job: Job, account: Account) -> Row:
    """Return the figures of ``_storage`` for JSON."""
    usd, unknown = _storage(made, job, account)
    after_usd = _usd_per_month_after(job, account)
    return {"usd": usd, "unknown": unknown, "usd_per_month_after": after_usd}


def storage_note(made: Plan, job: Job, account: Account, forecast: Forecast) -> Iterator[str]:
    """Yield lines where storage matters to a plan, a price is unknown, or where a keep rule or an
    interval costs more than it saves."""
    plan_usd = forecast.usd_mean
    usd, unknown = _storage(made, job, account)
    if unknown:
        yield f"Not counted, as their price is unknown: {', '.join(unknown)}."
    if usd > MIN_SHARE * plan_usd > 0:
        share = percent_text(usd / plan_usd)
        yield f"Disks and storage: {usd_text(usd)} of it, {share} (list prices)."
    yield from _keep_note(made, job, account, plan_usd)
    yield from _after_note(job, account, plan_usd)
    yield from _interval_note(made, job, account, forecast)


def _storage(made: Plan, job: Job, account: Account) -> tuple[float, list[str]]:
    """Return the part of the plan's dollars that is of root volumes and of checkpoints in a store,
    and what is not counted because its price is unknown."""
    prices = with_root_volumes(load_catalog().transfer, account.providers)
    usd, unknown = 0.0, set[str]()
    stored = checkpoint_storage(job, job.checkpoint.size_gib, prices)
    if stored is None:
        unknown.add("checkpoints" if job.checkpoint.region else "checkpoints (no region given)")
    save_usd, kept_usd = stored or (0.0, 0.0)
    mine = [each for each in made.allocations if each.job == job.name]
    forecast, plan_hours = made.proposal_of(job.name), sum(map(_hours, mine))
    # What a save's dollars pay for of training, at the plan's mean rate.
    plan_usd = 0.0 if forecast is None else forecast.usd_mean
    paid_s = 3600 * save_usd * plan_hours / plan_usd if plan_usd > 0 else 0.0
    interval_s = save_interval_s(job.checkpoint, TYPICAL_HAZARD_PER_HOUR, paid_s)
    for each in mine:
        hours = _hours(each)
        volume_usd = volume_usd_per_hour(each.pool, prices)
        if volume_usd is None:
            unknown.add(f"root volumes in {each.pool.provider}/{each.pool.region}")
        usd += each.node_hours * (volume_usd or 0.0)
        usd += hours * (mean_kept_checkpoints(job) * kept_usd + save_usd * 3600 / interval_s)
    return usd, sorted(unknown)


def _keep_note(made: Plan, job: Job, account: Account, plan_usd: float) -> Iterator[str]:
    """Yield a line where the keep rule costs more than the three newest would, and it matters."""
    prices = with_root_volumes(load_catalog().transfer, account.providers)
    stored = checkpoint_storage(job, job.checkpoint.size_gib, prices)
    if stored is None:
        return
    hours = sum(_hours(each) for each in made.allocations if each.job == job.name)
    more_usd = hours * (mean_kept_checkpoints(job) - KEPT_CHECKPOINTS) * stored[1]
    if more_usd > MIN_SHARE * plan_usd:
        yield (
            f"The keep rule costs {usd_text(more_usd)} more than the {KEPT_CHECKPOINTS} newest "
            "checkpoints, from which training goes on as well."
        )


def _after_note(job: Job, account: Account, plan_usd: float) -> Iterator[str]:
    """Yield a line where what stays in the store when the job is over matters."""
    month_usd, milestones = _usd_per_month_after(job, account), milestone_count(job)
    if month_usd is not None and month_usd > MIN_SHARE * plan_usd:
        kept = pluralize(job.checkpoint.keep, "checkpoint")
        kept += f" and {milestones} milestones" if milestones else ""
        yield (
            f"{kept} stay when the job is over: {usd_text(month_usd)} a month until they are "
            "pruned."
        )


def _usd_per_month_after(job: Job, account: Account) -> float | None:
    """Return what the checkpoints cost a month that are kept when the job is over; None where the
    price is unknown."""
    prices = with_root_volumes(load_catalog().transfer, account.providers)
    stored = checkpoint_storage(job, job.checkpoint.size_gib, prices)
    if stored is None:
        return None
    return (job.checkpoint.keep + milestone_count(job)) * stored[1] * HOURS_PER_MONTH


def _interval_note(made: Plan, job: Job, account: Account, forecast: Forecast) -> Iterator[str]:
    """Yield a line where saves cost clearly more than the work that they spare, or spare too little
    of it, at the interval that the file states."""
    stated_s, mine = job.checkpoint.interval_s, [a for a in made.allocations if a.job == job.name]
    hours = sum(map(_hours, mine))
    lost = forecast.expected_interruptions
    if stated_s is None or not hours or not lost or job.resources.gpus_per_group is not None:
        return
    prices = with_root_volumes(load_catalog().transfer, account.providers)
    stored = checkpoint_storage(job, job.checkpoint.size_gib, prices) or (0.0, 0.0)
    sent = [move.usd or 0.0 for a in mine if (move := save_transfer(job, a.pool, prices))]
    usd_per_s = forecast.usd_mean / hours / 3600
    save_usd = stored[0] + max(sent, default=0.0) + job.checkpoint.save_s * usd_per_s
    saves_usd, redone_usd = 3600 * hours * save_usd / stated_s, lost * stated_s / 2 * usd_per_s
    best_s = math.sqrt(2 * 3600 * hours * save_usd / (lost * usd_per_s))
    best_usd = lost * best_s * usd_per_s
    if saves_usd + redone_usd - best_usd > MIN_SHARE * forecast.usd_mean:
        yield (
            f"checkpoint.interval: a save each {seconds_text(stated_s)} costs "
            f"{usd_text(saves_usd)}, for {usd_text(redone_usd)} of work lost by interruptions; "
            f"each {seconds_text(best_s)} both together are {usd_text(best_usd)}."
        )


def _hours(each: Allocation) -> float:
    return (each.end_at - each.start_at).total_seconds() / 3600
