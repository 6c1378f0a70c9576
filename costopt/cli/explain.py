"""`costopt explain`: shows why decisions were made, from a state directory or a daemon."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from costopt.cli.connection import OpenSource, source_options
from costopt.cli.options import output_option, print_table

if TYPE_CHECKING:
    from costopt.domain.events import DecisionMade, Event
    from costopt.render.table import Table


DECISION_ID = re.compile(r"(?P<job>.+)-d[0-9]+")
NO_ALTERNATIVES = (
    "Nothing was recorded of what else was weighed: run with --explain, with a strategy that "
    "weighs, such as adaptive."
)


@click.command()
@click.argument("job", metavar="JOB|DECISION")
@click.argument("decision", required=False)
@source_options
@output_option
def explain(job: str, decision: str | None, source: OpenSource, output: str) -> None:
    """Show why a decision was made.

    Without DECISION, list every decision of the job. With the id of one, or last, show its
    alternatives, each with its expected cost to the end of the job, the estimates behind that, the
    slack, and the rule that bound it. A decision's id alone is enough.
    """
    from costopt.domain.errors import CostoptError

    named = None if decision else DECISION_ID.fullmatch(job)
    with source() as runs:
        try:
            run = runs.job(job)
        except CostoptError:
            if named is None:
                raise
            job, decision = named["job"], job
            run = runs.job(job)
        made = list(_bound_by_guards(recorded.event for recorded in run.events()))
    print_table(_all(job, made) if decision is None else _one(job, made, decision), output)


def _bound_by_guards(events: Iterable[Event]) -> Iterable[DecisionMade]:
    """Yield the decisions in order; one that a guard stopped has the guard as its rule, one after
    which an unhealthy node was replaced says so.

    A guard stops an action after the decision, so the ledger has it in an event of its own.
    """
    from costopt.domain.events import DecisionMade, GuardTripped, NodeReplaced

    made: list[DecisionMade] = []
    for event in events:
        match event:
            case DecisionMade():
                made.append(event)
            case GuardTripped(guard=guard, message=message) if made:
                made[-1] = replace(
                    made[-1],
                    rule=f"guard {guard}",
                    reason=f"{made[-1].reason}; refused by guard {guard}: {message}",
                )
            case NodeReplaced(node_id=node_id, message=message) if made:
                reason = f"{made[-1].reason}; {node_id} is replaced: {message}"
                made[-1] = replace(made[-1], rule="health", reason=reason)
    return made


def _all(job: str, made: list[DecisionMade]) -> Table:
    from costopt.formatting import choice_lines, pools_text, seconds_text
    from costopt.render.table import Column, Table
    from costopt.views.job import choice_of

    columns = (
        Column("decision", "Decision"),
        Column("at", "Time (UTC)", rank=2),
        Column("choice", "Choice", choice_lines),
        Column("rule", "Rule", rank=3),
        Column("slack_s", "Slack", seconds_text, right=True, rank=1),
        Column("weighed", "Weighed", right=True, rank=4),
        Column("reason", "Reason", pools_text, fold_at=60),
    )
    rows = [
        {
            "decision": each.decision_id,
            "at": each.at,
            "choice": choice_of(each),
            "rule": each.rule,
            "slack_s": each.slack_s,
            "weighed": len(each.alternatives),
            "reason": each.reason,
        }
        for each in made
    ]
    return Table("costopt.explain/1", f"Decisions for {job}", columns, rows, facts={"job": job})


def _one(job: str, made: list[DecisionMade], decision: str) -> Table:
    from costopt.formatting import choice_lines, pools_text, seconds_text, usd_text
    from costopt.render.table import Column, Table
    from costopt.views.job import choice_of

    event = _named(job, made, decision)
    columns = (
        Column("choice", "Alternative", choice_lines),
        Column("value_usd", "$ to the end", usd_text, right=True),
        Column("more_usd", "$ more", usd_text, right=True),
        Column("chosen", "Chosen"),
        Column("note", "Estimates", pools_text, fold_at=60),
    )
    known = [value for _, value, _ in event.alternatives if value is not None]
    rows = [
        {
            "choice": choice,
            "value_usd": value,
            "more_usd": None if value is None else value - min(known),
            "chosen": choice == choice_of(event),
            "note": note,
        }
        for choice, value, note in event.alternatives
    ]
    slack = "unknown" if event.slack_s is None else seconds_text(event.slack_s)
    bound = "no rule bound it" if event.rule is None else f"bound by the rule {event.rule}"
    notes = (f"{pools_text(event.reason)}; slack {slack}; {bound}.",)
    facts = {
        "job": job,
        "decision": event.decision_id,
        "at": event.at,
        "choice": choice_of(event),
        "reason": event.reason,
        "rule": event.rule,
        "slack_s": event.slack_s,
    }
    return Table(
        "costopt.explain.decision/1",
        f"{event.decision_id} at {event.at:%Y-%m-%d %H:%M:%S} UTC: {pools_text(choice_of(event))}",
        columns,
        rows,
        facts=facts,
        notes=notes if rows else (*notes, NO_ALTERNATIVES),
    )


def _named(job: str, made: list[DecisionMade], decision: str) -> DecisionMade:
    from costopt.spec.fields import did_you_mean

    if decision == "last" and made:
        return made[-1]
    found = next((each for each in made if each.decision_id == decision), None)
    if found is None:
        near = did_you_mean(decision, [each.decision_id for each in made])
        raise click.BadParameter(
            f"job {job!r} has no decision {decision!r}{near}", param_hint="DECISION"
        )
    return found
