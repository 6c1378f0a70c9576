"""The answer of a plan, a comparison or a run: when, how sure, for how much, against what."""

from __future__ import annotations

from costopt.domain.job import Job
from costopt.domain.plan import Forecast
from costopt.formatting import (
    kwh_text,
    minute_text,
    pluralize,
    probability_text,
    seconds_text,
    usd_micros_text,
    usd_text,
    wh_text,
    whole_percent_text,
)
from costopt.ledger.summary import JobState, JobSummary


def forecast_headline(job: Job, forecast: Forecast, on_demand_usd: float | None) -> str:
    """Return when the job ends, how surely in time, and its dollars and energy.

    ``on_demand_usd`` is what it costs on demand, None where that is unknown or not allowed.
    """
    done_at = forecast.finish_p50_at
    energy = "energy unknown" if forecast.kwh is None else kwh_text(forecast.kwh)
    return (
        f"Done {done_at:%a} {minute_text(done_at)}, {_in_time(job, forecast)}. "
        f"{usd_text(forecast.usd_mean)} expected (P95 {usd_text(forecast.usd_p95)})"
        f"{saving_text(forecast.usd_mean, on_demand_usd)}; {energy}."
    )


def saving_text(usd: float, on_demand_usd: float | None) -> str:
    """Return what the work costs on demand and what is saved against that, after a semicolon; ""
    where it is unknown."""
    if on_demand_usd is None:
        return ""
    if on_demand_usd <= usd:
        return f"; {usd_text(on_demand_usd)} on demand"
    saved = whole_percent_text(1 - usd / on_demand_usd)
    return f"; {usd_text(on_demand_usd)} on demand, so {saved} saved"


def deadline_verdict(summary: JobSummary) -> str:
    """Return ``deadline_sentence`` as a whole sentence."""
    said = deadline_sentence(summary)
    return f"{said[0].upper()}{said[1:]}."


def deadline_sentence(summary: JobSummary) -> str:
    """Return whether the job kept its deadline, and by how much."""
    if summary.state is JobState.FAILED:
        return "failed; the job's own command ended with an error"
    margin_s = summary.margin_s
    if margin_s is not None:
        if margin_s >= 0:
            return f"finished {seconds_text(margin_s)} before its deadline"
        return f"finished {seconds_text(-margin_s)} after its deadline"
    if summary.start_at is None:
        return "not submitted yet"
    if summary.deadline_at is None:
        return "finished" if summary.finished_at is not None else "unfinished, without a deadline"
    left_s = (summary.deadline_at - summary.now).total_seconds()
    if left_s < 0:
        return f"unfinished, {seconds_text(-left_s)} past its deadline"
    return f"unfinished, {seconds_text(left_s)} left until its deadline"


def cost_sentence(summary: JobSummary) -> str:
    """Return what the run cost, what the same work costs on demand, its energy and how often it
    was interrupted."""
    spent = usd_micros_text(summary.usd_micros)
    if summary.state is not JobState.FINISHED:
        spent += " so far"
    due = summary.due_usd_micros if summary.done_share else None
    against = "" if due is None else saving_text(summary.usd_micros / 1e6, due / 1e6)
    energy = "" if summary.wh is None else f"; {wh_text(summary.wh)}"
    times = pluralize(summary.interruptions, "interruption")
    return f"{spent}{against}{energy}; {times}."


def _in_time(job: Job, forecast: Forecast) -> str:
    if job.deadline_at is None:
        return f"without a deadline: an hour is worth {usd_text(job.usd_per_hour_waited)}"
    spare_s = (job.deadline_at - forecast.finish_p50_at).total_seconds()
    side = "before" if spare_s >= 0 else "after"
    sure = probability_text(forecast.on_time)
    return f"{seconds_text(abs(spare_s))} {side} the deadline, P(on time) {sure}"
