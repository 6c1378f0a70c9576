"""Events in words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from costopt.domain import events as ev
from costopt.domain.cached_data import GIGABITS_PER_GIB
from costopt.domain.events.node import has_estimated_end
from costopt.domain.fleet import EndCause
from costopt.domain.ports import RecordedEvent
from costopt.formatting import (
    UNKNOWN_TEXT,
    pools_text,
    second_text,
    seconds_text,
    usd_micros_text,
    wh_text,
)
from costopt.ledger.codec import encode
from costopt.render.table import Column, Table

ROUTINE = (
    ev.PlanMade,
    ev.TaskEnded,
    ev.ProgressReported,
    ev.NodeMeasured,
    ev.CheckpointCommitted,
    ev.DataMoved,
    ev.LaunchIntended,
    ev.TerminateIntended,
    ev.PriceChanged,
)
"""Events that come in numbers and change nothing a reader would look for first."""


@dataclass(frozen=True, slots=True)
class EventText:
    """One event in words. ``tone`` is good, bad, note or plain; ``routine`` ones may be folded.

    ``seq`` is its number in the ledger, where it was read from there.
    """

    source: ev.Event
    what: str
    detail: str
    tone: str
    routine: bool
    seq: int = 0


EVENT_COLUMNS = (
    Column("seq", "#", right=True),
    Column("at", "Time (UTC)", second_text, value="source.at"),
    Column("job", "Job", rank=1, value="source.job"),
    Column("event", "Event", value="what", tone=lambda event: event.tone),
    Column("detail", "Detail", pools_text, fold_at=60),
    Column("fields", "Fields", detail=True, value=lambda row: json.loads(encode(row.source))),
)


def events_table(recorded: Iterable[RecordedEvent]) -> Table:
    """Return a row per event; the details hold every field of each."""
    known = list(recorded)
    units = _units(each.event for each in known)
    rows = [describe_event(each.event, each.seq, units.get(each.event.job)) for each in known]
    return Table("costopt.events/1", "Events", EVENT_COLUMNS, rows)


def describe_event(event: ev.Event, seq: int = 0, unit: str | None = None) -> EventText:
    """Return the event in words; ``unit`` is that of the job's work, None where it is unknown."""
    label, tone, detail = _WORDS[type(event)]
    if isinstance(event, ev.NodeLaunched) and event.waiting:
        label, tone = "Node waits for capacity", "note"
    if isinstance(event, ev.HealthChanged) and event.issue is None:
        tone = "good"
    if isinstance(event, ev.NodeEnded) and event.cause.is_unplanned:
        label, tone = f"Node {event.cause.value.replace('_', ' ')}", "bad"
    if type(event) in _COUNTED:
        text = _COUNTED[type(event)](event, unit or "units")
    else:
        text = detail.format(e=event) if isinstance(detail, str) else detail(event)
    return EventText(event, label, text, tone, isinstance(event, ROUTINE), seq)


def describe_events(
    events: Iterable[ev.Event], units: Mapping[str, str] | None = None
) -> list[EventText]:
    """Return the events in words, in the order of their times.

    ``units`` are those of the work of jobs whose submission is not among them.
    """
    known = sorted(events, key=lambda event: event.at)
    found = {**(units or {}), **_units(known)}
    return [describe_event(each, unit=found.get(each.job)) for each in known]


def _units(events: Iterable[ev.Event]) -> dict[str, str]:
    return {each.job: each.unit for each in events if isinstance(each, ev.JobSubmitted)}


def _node(event: Any) -> str:
    return f"{event.node_id} in {event.pool}"


def _submitted(event: ev.JobSubmitted) -> str:
    due = "" if event.deadline_at is None else f" by {second_text(event.deadline_at)}"
    return (
        f"{event.work_units:,.0f} {event.unit}{due}, "
        f"policy {event.policy}, strategy {event.strategy}"
    )


def _decided(event: ev.DecisionMade) -> str:
    rule = "" if event.rule is None else f" [{event.rule}]"
    slack = "" if event.slack_s is None else f"; slack {seconds_text(event.slack_s)}"
    return f"{event.choice()}: {event.reason}{rule}{slack}"


def _planned(event: ev.PlanMade) -> str:
    prices = [f"{name} at ${max(by_hour):.4g}" for name, by_hour in event.prices]
    total = usd_micros_text(sum(event.usd_micros))
    return f"{total} in {len(event.usd_micros)} h; limits at most: {', '.join(prices)}"


def _ended(event: ev.NodeEnded) -> str:
    words = f": {event.message}" if event.message and event.cause is EndCause.FAILED else ""
    about = "about " if has_estimated_end(event) else ""
    return f"{_node(event)} at {about}{second_text(event.ended_at)}{words}"


def _committed(event: ev.CheckpointCommitted, unit: str) -> str:
    size = UNKNOWN_TEXT if event.size_bytes is None else f"{event.size_bytes / 2**30:,.2f} GiB"
    took = "" if event.save_s is None else f" in {event.save_s:.1f} s"
    return f"at {event.units:,.0f} {unit}, {size}{took}: {event.uri}"


def _cached(event: ev.CacheFetched) -> str:
    gbps = event.gib * GIGABITS_PER_GIB / event.seconds if event.seconds > 0 else 0.0
    speed = f" in {seconds_text(event.seconds)}, {gbps:.3g} Gbit/s" if event.gib > 0 else ""
    return f"{event.node_id}: {event.gib:,.3g} GiB fetched{speed}; {event.held_gib:,.3g} were there"


def _gang(event: ev.GangFormed) -> str:
    interval_s = event.checkpoint_interval_s
    saves = f"; saves every {seconds_text(interval_s)}" if interval_s > 0 else ""
    return f"generation {event.generation}: {', '.join(event.node_ids) or 'no node'}{saves}"


def _task_ended(event: ev.TaskEnded) -> str:
    figures = ", ".join(f"{name} {value:g}" for name, value in event.figures)
    took = "" if event.took_s is None else f" in {seconds_text(event.took_s)}"
    said = f"task {event.task} {event.outcome} on {event.node_id}{took}, start {event.starts}"
    return ": ".join(part for part in (said, figures or event.message) if part)


def _reached(event: ev.TrainingStarted | ev.TrainingStopped, unit: str) -> str:
    return "unknown progress" if event.units is None else f"{event.units:,.0f} {unit}"


def _reported(event: ev.ProgressReported, unit: str) -> str:
    speed = "" if event.units_per_s is None else f", {event.units_per_s:,.3g} {unit}/s"
    return f"{event.done_units:,.0f} {unit} done, {event.saved_units:,.0f} saved{speed}"


def _measured(event: ev.NodeMeasured) -> str:
    parts = " + ".join(part.upper() for part in event.parts)
    shares = (
        ("GPUs busy", event.gpu_utilization),
        ("GPU memory", event.gpu_memory_share),
        ("waiting for data", event.data_wait_share),
        ("goodput", event.goodput),
    )
    said = [
        "" if event.wh is None else f"{wh_text(event.wh)} measured by {parts}",
        "" if event.step_s is None else f"{event.step_s:.3g} s per step",
        *(f"{share:.0%} {name}" for name, share in shares if share is not None),
    ]
    return f"{event.node_id}: {', '.join(text for text in said if text) or 'nothing measured'}"


def _probed(event: ev.PowerLimitProbed, unit: str) -> str:
    if event.message or event.units_per_s is None or event.node_w is None:
        return f"{event.gpu_model}: {event.message or 'nothing measured'}"
    limit = "no limit" if event.cap_w is None else f"{event.cap_w:g} W"
    return f"{event.gpu_model}, {limit}: {event.units_per_s:.4g} {unit}/s, {event.node_w:.0f} W"


_WORDS: dict[type[ev.Event], tuple[str, str, str | Callable[[Any], str]]] = {
    ev.JobSubmitted: ("Job submitted", "note", _submitted),
    ev.DecisionMade: ("Decision", "note", _decided),
    ev.PlanMade: ("Plan", "note", _planned),
    ev.LaunchIntended: ("Launch intended", "plain", "{e.nodes} × {e.pool}"),
    ev.NodeLaunched: ("Node launched", "plain",
        lambda e: f"{_node(e)} at {usd_micros_text(e.micros_per_hour)}/h"),
    ev.LaunchFailed: ("Launch refused", "bad", "{e.error}: {e.message}"),
    ev.PriceChanged: ("Price changed", "plain",
        lambda e: f"{e.pool} now {usd_micros_text(e.micros_per_hour)}/h"),
    ev.CarbonIntensityRecorded: ("Carbon intensity", "plain",
        lambda e: f"{e.region} from {second_text(e.hour_at)}: {e.gco2e_per_kwh:.0f} g/kWh"),
    ev.ElectricityContractsRecorded: ("Electricity contracts", "plain",
        lambda e: "; ".join(f"{each[0]}: {each[2]:g} g/kWh" for each in e.contracts) or "none"),
    ev.GangFormed: ("Gang formed", "plain", _gang),
    ev.TrainingStarted: ("Training started", "good", ""),
    ev.TrainingStopped: ("Training stopped", "plain", ""),
    ev.ProgressReported: ("Progress", "plain", ""),
    ev.CheckpointCommitted: ("Checkpoint", "plain", ""),
    ev.DataMoved: (
        "Data moved",
        "plain",
        lambda e: (
            f"{e.gib:,.1f} GiB from {e.from_region} to {e.to_region} for a {e.why}, "
            f"{usd_micros_text(e.usd_micros)}"
        ),
    ),
    ev.CacheFetched: ("Cache fetched", "plain", _cached),
    ev.CheckpointRefused: ("Checkpoint refused", "bad", "{e.uri}: {e.message}"),
    ev.PowerLimitProbed: ("Power limit measured", "note", ""),
    ev.PowerLimitReported: (
        "Power limit",
        "note",
        lambda e: (
            f"{e.node_id}: {'no power limit' if e.cap_w is None else f'{e.cap_w:g} W per GPU'}: "
            f"{e.message}"
        ),
    ),
    ev.NodeMeasured: ("Node measured", "plain", _measured),
    ev.CheckpointIntervalChanged: ("Save interval", "note",
        lambda e: f"every {seconds_text(e.interval_s)}: {e.reason}"),
    ev.TaskEnded: ("Task ended", "plain", _task_ended),
    ev.GuaranteeChanged: ("Guarantee", "note", "the result is {e.guarantee}"),
    ev.InterruptionExpected: ("Interruption likely", "note",
        lambda e: f"{e.node_id}: {e.message or 'no longer'}"),
    ev.WorkLost: ("Work lost", "bad", ""),
    ev.InterruptionNoticed: (
        "Interruption announced",
        "bad",
        lambda e: (
            f"{e.node_id} goes at {second_text(e.interrupts_at)}"
            f"{'' if e.confirmed else ', as only the node reports'}"
        ),
    ),
    ev.NoticeWithdrawn: ("Notice withdrawn", "note",
        "{e.node_id} stays: its provider confirmed no interruption"),
    ev.HealthChanged: ("Node health", "bad", lambda e: f"{e.node_id or 'the gang'}: {e.message}"),
    ev.NodeReplaced: ("Node replaced", "bad", "{e.node_id} in {e.pool}: {e.message}"),
    ev.DrainIntended: ("Drain", "plain", "{e.node_id}: {e.reason}"),
    ev.TerminateIntended: ("Release", "plain", "{e.node_id}: {e.reason}"),
    ev.NodeGivenUp: ("Node given up", "bad", "{e.node_id} in {e.pool}: {e.message}"),
    ev.NodeEnded: ("Node released", "plain", _ended),
    ev.NodeReturned: ("Node listed again", "good", "{e.node_id} in {e.pool}"),
    ev.NodeBilled: ("Node billed", "plain", "{e.node_id} in {e.pool}: {e.source}"),
    ev.GuardTripped: ("Guard tripped", "bad", "{e.guard}: {e.message}"),
    ev.ModeChanged: ("Mode changed", "note", "{e.mode}"),
    ev.ClockJumped: ("Clock set", "note",
        lambda e: f"{'ahead' if e.seconds > 0 else 'back'} by {seconds_text(abs(e.seconds))}"),
    ev.LaunchesHalted: ("Launches halted", "bad", "{e.who}: {e.reason}"),
    ev.LaunchesAllowed: ("Launches allowed", "good", "the halt is over"),
    ev.ActionProposed: (
        "Proposal",
        "note",
        lambda e: f"{e.proposal_id}: {e.action} {e.node_id or f'{e.nodes} × {e.pool}'}: {e.reason}",
    ),
    ev.SignalStale: ("Signal stale", "bad", "{e.source}: {e.message}"),
    ev.JobFinished: ("Job finished", "good", ""),
    ev.JobFailed: ("Job failed", "bad", "{e.message}"),
    ev.RunStopped: ("Run stopped", "note", "{e.reason}"),
}  # fmt: skip
"""Label, tone and detail of each kind of event ``e``; that of ``_COUNTED`` is there."""

_COUNTED: dict[type[ev.Event], Callable[[Any, str], str]] = {
    ev.TrainingStarted: lambda e, unit: f"from {_reached(e, unit)}",
    ev.TrainingStopped: lambda e, unit: f"at {_reached(e, unit)}: {e.reason}",
    ev.ProgressReported: _reported,
    ev.CheckpointCommitted: _committed,
    ev.PowerLimitProbed: _probed,
    ev.WorkLost: lambda e, unit: f"{e.units:,.0f} {unit}: {e.cause}",
    ev.JobFinished: lambda e, unit: f"{e.units:,.0f} {unit} done and saved",
}
"""The details that count work, in its unit."""
