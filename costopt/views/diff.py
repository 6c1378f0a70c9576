"""What a change costs, as a table and as the comment of a pull request.

Names, paths and messages in a comment come from the change, so anyone may have written them: they
are code spans, in which neither Markdown nor HTML, mentions or references take effect.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from costopt.domain.plan import Forecast
from costopt.formatting import (
    UNKNOWN_CELL,
    gco2e_text,
    kwh_text,
    minute_text,
    percent_text,
    pool_text,
    probability_text,
    usd_text,
)
from costopt.planning.plan_diff import (
    DiffSettings,
    Figure,
    JobDiff,
    PlanDiff,
    PlannedFile,
    figure_of,
)
from costopt.render.table import Column, Row, Table

MAX_COMMENT = 60_000
"""Characters of a comment; GitHub takes 65,536."""
MAX_NAME = 80
MAX_MESSAGE = 400
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
"""Line ends, control characters, and those that reorder text."""
_TEXTS: dict[Figure, Callable[[float | None], str]] = {
    Figure.USD: usd_text,
    Figure.KWH: kwh_text,
    Figure.GCO2E: gco2e_text,
}


@dataclass(frozen=True, slots=True)
class DiffReport:
    """A diff with what it was made of. ``violations`` are sentences on limits that it exceeds,
    and quote nothing of the change."""

    diff: PlanDiff
    settings: DiffSettings
    base: str
    head: str
    violations: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Return whether a limit is exceeded, a file is wrong or a deadline cannot be kept."""
        return bool(self.violations or self.diff.invalid or self.diff.late)

    @property
    def tag(self) -> str:
        """Return the hidden first line by which a later run finds the comment of these files."""
        key = "\0".join((*self.settings.patterns, self.settings.policy))
        return f"<!-- costopt-diff {hashlib.sha256(key.encode()).hexdigest()[:12]} -->"


def diff_table(report: DiffReport) -> Table:
    """Return a row per job that changed, and the totals as facts."""
    diff = report.diff
    totals = {figure: diff.totals(figure) for figure in Figure}
    return Table(
        schema="costopt.diff/1",
        title=_headline(diff),
        columns=(
            *_COLUMNS,
            Column("problem", "Problem", fold_at=40, detail=not any(map(_problem, diff.jobs))),
            *_DETAILS,
        ),
        rows=[_row(job) for job in diff.jobs],
        facts={
            "base": report.base,
            "head": report.head,
            "policy": report.settings.policy,
            "unchanged": diff.unchanged,
            "totals": {
                figure.name.lower(): {"before": each.before, "after": each.after}
                for figure, each in totals.items()
            },
            "late": [job.path for job in diff.late],
            "violations": list(report.violations),
        },
        notes=report.violations,
    )


_COLUMNS = (
    Column("path", "Job file"),
    Column("change", "Change"),
    Column("usd_before", "$ before", usd_text, right=True),
    Column("usd_after", "$ after", usd_text, right=True),
    Column("kwh_before", "kWh before", kwh_text, right=True, rank=1),
    Column("kwh_after", "kWh after", kwh_text, right=True, rank=1),
    Column("gco2e_before", "CO2e before", gco2e_text, right=True, rank=2),
    Column("gco2e_after", "CO2e after", gco2e_text, right=True, rank=2),
    Column("on_time", "P(on time)", probability_text, right=True, rank=3, interval=True),
)
_DETAILS = (
    Column("name", "Name", detail=True),
    Column("usd_p95_before", "$ P95 before", usd_text, detail=True),
    Column("usd_p95_after", "$ P95 after", usd_text, detail=True),
    Column("finish_p95_before", "Finish before", minute_text, detail=True),
    Column("finish_p95_after", "Finish after", minute_text, detail=True),
)


def _row(job: JobDiff) -> Row:
    sides = {"before": job.before, "after": job.after}
    figures: dict[str, object] = {}
    for end, side in sides.items():
        forecast = None if side is None else side.forecast
        for figure, key in ((Figure.USD, "usd"), (Figure.KWH, "kwh"), (Figure.GCO2E, "gco2e")):
            figures[f"{key}_{end}"] = None if side is None else figure_of(side, figure)
        figures[f"usd_p95_{end}"] = None if forecast is None else forecast.usd_p95
        figures[f"finish_p95_{end}"] = None if forecast is None else forecast.finish_p95_at
    after = None if job.after is None else job.after.forecast
    return {
        "path": job.path,
        "change": job.change,
        "name": _job_name(job),
        **figures,
        "on_time": None if after is None else after.on_time,
        "problem": _problem(job),
    }


def diff_outputs(report: DiffReport) -> dict[str, str]:
    """Return the figures that later steps of a CI job use; "" is unknown."""
    values = {"changed": str(bool(report.diff.jobs)).lower(), "over": str(report.is_over).lower()}
    for figure, key in ((Figure.USD, "usd"), (Figure.KWH, "kwh"), (Figure.GCO2E, "gco2e")):
        totals = report.diff.totals(figure)
        for end, value in (("before", totals.before), ("after", totals.after)):
            values[f"{key}-{end}"] = "" if value is None else f"{value:.6f}"
    return values


def diff_comment(report: DiffReport) -> str:
    """Return the Markdown of a comment: at most MAX_COMMENT characters. Where it is longer, the
    details go first, then the last rows of the table."""
    rows, details = list(_comment_rows(report.diff)), _details(report.diff)
    text = _comment(report, rows, details)
    if len(text) > MAX_COMMENT:
        text = _comment(report, rows, "")
    while len(text) > MAX_COMMENT and rows:
        # At least the first ones of many rows that are each too long must go.
        rows = rows[: min(len(rows) - 1, len(rows) * MAX_COMMENT // len(text))]
        text = _comment(report, rows, "")
    return text


def _comment(report: DiffReport, rows: Sequence[str], details: str) -> str:
    diff = report.diff
    left_out = len(diff.jobs) - len(rows)
    parts = [f"{report.tag}\n#### costopt: {_headline(diff)}"]
    if diff.jobs:
        head = "| Job file | Cost | Energy | CO2e | Done by (95 %) | On time |"
        lines = [head, "|---|--:|--:|--:|--:|--:|", *rows]
        if left_out:
            lines.append(f"| and {left_out} more | | | | | |")
        if len(diff.jobs) > 1:
            lines.append(_totals_row(diff))
        parts.append("\n".join(lines))
    parts += [f"❌ {each}" for each in report.violations]
    parts += [f"⚠️ {each}" for each in _uncompared(diff, _code)]
    parts.append(details)
    same = f" {diff.unchanged} other jobs are not affected." if diff.unchanged else ""
    parts.append(
        f"<sub>Means of simulated runs under policy {_code(report.settings.policy)}, "
        f"{_code(report.base)} → {_code(report.head)}, both at the same prices: "
        f"{_code(diff.origin)}.{same} CO2e is of the grid, per region.</sub>"
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _headline(diff: PlanDiff) -> str:
    if not diff.jobs:
        return "no job changes"
    if not any(job.is_comparable for job in diff.jobs):
        return "the change cannot be compared"
    cost = diff.totals(Figure.USD)
    parts = [_signed(diff.totals(figure).increase, figure) for figure in Figure]
    share = "" if cost.share is None else f" ({_sign(cost.share)}{percent_text(abs(cost.share))})"
    return f"cost {parts[0]}{share}, energy {parts[1]}, CO2e {parts[2]}"


def _signed(increase: float | None, figure: Figure) -> str:
    if increase is None:
        return "unknown"
    return f"{_sign(increase)}{_TEXTS[figure](abs(increase))}"


def _sign(value: float) -> str:
    return "−" if value < 0 else "+" if value > 0 else "±"


def _comment_rows(diff: PlanDiff) -> Iterator[str]:
    for job in diff.jobs:
        figures = [_figure_cell(job, figure) for figure in Figure]
        finish = _cell(job, lambda forecast: minute_text(forecast.finish_p95_at))
        on_time = _cell(job, lambda forecast: probability_text(forecast.on_time))
        yield "| " + " | ".join((_code(job.path), *figures, finish, on_time)) + " |"


def _totals_row(diff: PlanDiff) -> str:
    cells = []
    for figure in Figure:
        total = diff.totals(figure)
        cells.append(f"**{_arrow(_TEXTS[figure](total.before), _TEXTS[figure](total.after))}**")
    return "| **Total** | " + " | ".join(cells) + " | | |"


def _figure_cell(job: JobDiff, figure: Figure) -> str:
    text = _cell(job, lambda forecast: _TEXTS[figure](getattr(forecast, figure)))
    before, after = figure_of(job.before, figure), figure_of(job.after, figure)
    if not before or after is None or job.after is None or before == after:
        return text
    share = after / before - 1
    return f"{text} ({_sign(share)}{percent_text(abs(share))})"


def _cell(job: JobDiff, text: Callable[[Forecast], str]) -> str:
    """Return what was and what is, once where both are the same."""
    if job.before is None:
        return f"new: {_side(job.after, text)}"
    if job.after is None:
        return f"{_side(job.before, text)} → removed"
    return _arrow(_side(job.before, text), _side(job.after, text))


def _side(side: PlannedFile | None, text: Callable[[Forecast], str]) -> str:
    if side is None:
        return UNKNOWN_CELL
    if side.forecast is None:
        return "invalid" if side.is_invalid else "no plan"
    return text(side.forecast)


def _arrow(before: str, after: str) -> str:
    return after if before == after else f"{before} → {after}"


def _uncompared(diff: PlanDiff, quoted: Callable[[str], str]) -> Iterator[str]:
    """Yield what is wrong with jobs that have no plan, before or after."""
    for job in diff.jobs:
        if not job.is_comparable:
            yield f"{quoted(job.path)} is not in the totals: {quoted(_problem(job) or '')}"


def _problem(job: JobDiff) -> str | None:
    for when, side in (("", job.after), ("before the change: ", job.before)):
        if side is not None and side.forecast is None:
            return f"{when}{side.problem}"
    return None


def _job_name(job: JobDiff) -> str | None:
    for side in (job.after, job.before):
        if side is not None and side.scenario is not None:
            return side.scenario.job.name
    return None


def _details(diff: PlanDiff) -> str:
    lines = [line for job in diff.jobs for line in _plan_lines(job)]
    if not lines:
        return ""
    return "\n".join(("<details><summary>What the plans use</summary>", "", *lines, "</details>"))


def _plan_lines(job: JobDiff) -> Iterator[str]:
    for when, side in (("before", job.before), ("after", job.after)):
        scenario = None if side is None else side.scenario
        if scenario is None or scenario.plan is None or scenario.forecast is None:
            continue
        yield f"{_code(job.path)} {when} the change:"
        for each in scenario.plan.allocations:
            span = f"{minute_text(each.start_at)} to {minute_text(each.end_at)}"
            yield f"- {span}: {each.nodes} × {_code(pool_text(str(each.pool)))}"
        yield ""


def _code(text: str) -> str:
    """Return text from outside as a code span on one line, also within a table."""
    plain = _CONTROL.sub(" ", text).replace("|", "¦").strip()
    limit = MAX_MESSAGE if " " in plain else MAX_NAME
    plain = plain if len(plain) <= limit else f"{plain[: limit - 1]}…"
    runs = [len(run) for run in re.findall("`+", plain)]
    fence = "`" * (max(runs, default=0) + 1)
    pad = " " if plain.startswith("`") or plain.endswith("`") or not plain else ""
    return f"{fence}{pad}{plain or '-'}{pad}{fence}"
