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


DECISION_ID = re.compile(r"(?P<job>.+)-d[0-9]+")


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
    from costopt.views.decision import alternatives_table, decisions_table

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
    table = decisions_table(job, made)
    if decision is not None:
        table = alternatives_table(_named(job, made, decision))
    print_table(table, output)


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
