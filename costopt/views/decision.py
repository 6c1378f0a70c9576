"""A decision of a strategy, and its alternatives. A row of the first is a DecisionMade."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import quote

from costopt.domain.events import DecisionMade
from costopt.formatting import UNKNOWN_TEXT, choice_lines, pools_text, second_text, usd_text
from costopt.render.table import Column, Row, Table, pick
from costopt.views.job import job_path, slack_text, slack_tone

MAX_ROWS = 200
MAX_ALTERNATIVES = 3


def decision_path(decision_id: str) -> str:
    """Return the path of a decision's page."""
    return f"/decisions/{quote(decision_id, safe='')}"


def _instead(decision: DecisionMade) -> str:
    """Return the cheapest other choices with their dollars, a line each."""
    values = {what: usd for what, usd, _ in decision.alternatives if usd is not None}
    values.pop(decision.choice(), None)
    cheapest = sorted(values.items(), key=lambda pair: pair[1])[:MAX_ALTERNATIVES]
    return "\n".join(f"{what} {usd_text(usd)}" for what, usd in cheapest)


DECISION_COLUMNS = (
    Column("decision", "Decision", value="decision_id", link=decision_path),
    Column("job", "Job", link=job_path),
    Column("at", "Time (UTC)", rank=2),
    Column("choice", "Choice", choice_lines, value=DecisionMade.choice),
    Column("rule", "Rule", rank=3, unknown="", tone="note"),
    Column("slack_s", "Slack", slack_text, right=True, rank=1, tone=slack_tone),
    Column("weighed", "Weighed", right=True, rank=4, value=lambda made: len(made.alternatives)),
    Column("usd", "$ to the end", usd_text, right=True, value=DecisionMade.expected_usd),
    Column("instead", "Instead", pools_text, value=_instead),
    Column("reason", "Reason", pools_text, fold_at=60),
)

ALTERNATIVE_COLUMNS = (
    Column("choice", "Alternative", choice_lines),
    Column("value_usd", "$ to the end", usd_text, right=True),
    Column("more_usd", "$ more", usd_text, right=True),
    Column("chosen", "Chosen", tone=lambda each: "good" if each["chosen"] else "plain"),
    Column("note", "Estimates", pools_text, fold_at=60),
)


NO_ALTERNATIVES = (
    "Nothing was recorded of what else was weighed: run with --explain, with a strategy that "
    "weighs, such as adaptive."
)


def decisions_table(job: str, made: Sequence[DecisionMade]) -> Table:
    """Return a row per decision of a job."""
    columns = pick(DECISION_COLUMNS, "decision at choice rule slack_s weighed reason")
    return Table("costopt.explain/1", f"Decisions for {job}", columns, made, facts={"job": job})


def alternatives_table(made: DecisionMade) -> Table:
    """Return a row per alternative of a decision, with its dollars above the cheapest."""
    known = [usd for _, usd, _ in made.alternatives if usd is not None]
    rows: list[Row] = [
        {
            "choice": choice,
            "value_usd": usd,
            "more_usd": None if usd is None else usd - min(known),
            "chosen": choice == made.choice(),
            "note": note,
        }
        for choice, usd, note in made.alternatives
    ]
    bound = "no rule bound it" if made.rule is None else f"bound by the rule {made.rule}"
    slack = UNKNOWN_TEXT if made.slack_s is None else slack_text(made.slack_s)
    facts = pick(DECISION_COLUMNS, "job decision at choice reason rule slack_s")
    return Table(
        "costopt.explain.decision/1",
        f"{made.decision_id} at {second_text(made.at)}: {pools_text(made.choice())}",
        ALTERNATIVE_COLUMNS,
        rows,
        facts={column.key: column.value_in(made) for column in facts},
        notes=(
            f"{pools_text(made.reason)}; slack {slack}; {bound}.",
            *(() if rows else (NO_ALTERNATIVES,)),
        ),
    )


def decision_table(made: Sequence[DecisionMade], begun_at: datetime, title: str) -> Table:
    """Return the first MAX_ROWS decisions of a run, each with its hour since ``begun_at``."""
    hour = Column(
        "hour", "Hour", "{:.2f}".format, right=True,
        value=lambda decision: (decision.at - begun_at).total_seconds() / 3600,
    )  # fmt: skip
    name, *others = pick(DECISION_COLUMNS, "decision choice reason usd instead slack_s rule")
    more = "" if len(made) <= MAX_ROWS else f" (the first {MAX_ROWS} of {len(made)})"
    return Table("", f"{title}{more}", (name, hour, *others), made[:MAX_ROWS])
