"""`costopt diff`: what a change of job and policy files costs, for reviews."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.errors import print_error
from costopt.cli.options import (
    account_option,
    at_option,
    carbon_option,
    check_price_source,
    max_age_option,
    output_option,
    print_table,
    record_option,
)
from costopt.domain.errors import GuardTrippedError, InfeasibleError, SpecError

if TYPE_CHECKING:
    from costopt.planning.plan_diff import DiffSettings, IncreaseLimit, PlanDiff
    from costopt.planning.quotes import QuoteSet
    from costopt.views.diff import DiffReport

ALWAYS, CHANGED, OVER = "always", "changed", "over"
UPDATE, NEW, OFF = "update", "new", "off"


def _limit(
    figure: str,
) -> Callable[[click.Context, click.Parameter, str | None], IncreaseLimit | None]:
    """Return the callback of an option that limits the increase of a figure."""

    def parse(
        context: click.Context, option: click.Parameter, text: str | None
    ) -> IncreaseLimit | None:
        from costopt.planning.plan_diff import Figure, IncreaseLimit

        if not text:
            return None
        try:
            return IncreaseLimit.parse(Figure(figure), text)
        except ValueError:
            raise click.BadParameter(
                f"expected an amount such as 25 or a share such as 10%, got {text!r}",
                context,
                option,
            ) from None

    return parse


@click.command()
@click.argument("base")
@click.argument("head", default=".")
@click.option("--jobs", multiple=True, metavar="PATTERN", default=("jobs/**/*.yaml",),
              help="Job files; may be repeated.")  # fmt: skip
@click.option("--policy", "-p", default="cheapest", metavar="NAME|FILE",
              help="A shipped policy, or a policy file: of each side its own.")  # fmt: skip
@account_option
@record_option
@at_option
@max_age_option
@carbon_option
@click.option("--max-increase-usd", callback=_limit("usd_mean"), metavar="USD|%",
              help="Fail if the jobs cost this much more together, such as 25 or 10%.")  # fmt: skip
@click.option("--max-increase-kwh", callback=_limit("kwh"), metavar="KWH|%",
              help="Fail if they draw this much more.")  # fmt: skip
@click.option("--max-increase-kgco2e", callback=_limit("gco2e"), metavar="KG|%",
              help="Fail if they emit this much more.")  # fmt: skip
@click.option("--fail-on-missed-deadline", is_flag=True,
              help="Fail with 3 if no plan of a job keeps its deadline.")  # fmt: skip
@click.option("--post", type=click.Choice(["github", "gitlab"]), default=None,
              help="Comment on the pull request of this CI job.")  # fmt: skip
@click.option("--comment", type=click.Choice([UPDATE, NEW, OFF]), default=UPDATE,
              help="Edit the last comment, write a new one, or none.")  # fmt: skip
@click.option("--comment-if", type=click.Choice([ALWAYS, CHANGED, OVER]), default=CHANGED,
              help="When to write a first comment: always, on a change, over a limit.")  # fmt: skip
@output_option
def diff(
    base: str, head: str, jobs: tuple[str, ...], policy: str, account: str | None,
    market: Path | None, at: datetime | None, max_age_s: float | None, carbon: Path | None,
    max_increase_usd: IncreaseLimit | None, max_increase_kwh: IncreaseLimit | None,
    max_increase_kgco2e: IncreaseLimit | None, fail_on_missed_deadline: bool, post: str | None,
    comment: str, comment_if: str, output: str,
) -> None:  # fmt: skip
    """Compare costs before and after a change of job files.

    Costs are dollars, kWh and CO2e. BASE and HEAD are folders or git revisions: `costopt diff main`
    compares the working folder with the branch main. Jobs whose file, policy or account differs are
    planned on both sides at the same prices; --account names a file of each side. Exits with 2 if a
    file of HEAD is wrong, with 4 if an increase is above its limit. --output md prints what --post
    writes as a comment.
    """
    from costopt.planning.plan_diff import DiffSettings
    from costopt.views.diff import DiffReport, diff_comment, diff_table

    check_price_source(market, at, max_age_s)
    settings = DiffSettings(jobs, policy, account)
    made = _plan_both(base, head, settings, _quotes(market, at, carbon, max_age_s))
    limits = [
        each
        for each in (max_increase_usd, max_increase_kwh, max_increase_kgco2e)
        if each is not None
    ]
    violations = tuple(found for each in limits if (found := each.violation(made)))
    if fail_on_missed_deadline and made.late:
        violations += (f"Jobs without a plan that keeps their deadline: {len(made.late)}.",)
    report = DiffReport(made, settings, base, head, violations)
    if output == "md":
        click.echo(diff_comment(report), nl=False)
    else:
        for note in (*made.notes, made.origin):
            print_error("note", note)
        print_table(diff_table(report), output)
    if post is not None:
        _post(report, post, comment, comment_if)
    _raise_if_bad(report, fail_on_missed_deadline)


def _quotes(
    market: Path | None, at: datetime | None, carbon: Path | None, max_age_s: float | None
) -> QuoteSet:
    from costopt.api.inputs import read_market
    from costopt.planning.quotes import resolve_quotes

    history = None if market is None else read_market(market).history
    return resolve_quotes(history, at, carbon, max_age_s=max_age_s)


def _plan_both(base: str, head: str, settings: DiffSettings, seen: QuoteSet) -> PlanDiff:
    from costopt.planning.file_tree import open_file_tree
    from costopt.planning.plan_diff import diff_plans

    with (
        open_file_tree(base, settings.patterns) as before,
        open_file_tree(head, settings.patterns) as after,
    ):
        return diff_plans(before, after, settings, seen)


def _post(report: DiffReport, kind: str, comment: str, comment_if: str) -> None:
    """Comment on the pull request, and set the outputs of the step. A comment that cannot be
    written is a note: the job's summary, or its log, has the report."""
    from costopt.client.ci_job import read_ci_job
    from costopt.client.review_comments import CommentError, put_comment
    from costopt.views.diff import diff_comment, diff_outputs

    ci_job, text = read_ci_job(kind, os.environ), diff_comment(report)
    has_summary = ci_job.write_summary(text)
    ci_job.write_outputs(diff_outputs(report))
    if comment == OFF:
        return
    why_not = ci_job.why_not
    if ci_job.thread is not None:
        is_due = {ALWAYS: True, CHANGED: bool(report.diff.jobs), OVER: report.is_over}[comment_if]
        try:
            if comment == UPDATE:
                put_comment(ci_job.thread, report.tag, text, create=is_due)
            elif is_due:
                ci_job.thread.add(text)
        except CommentError as error:
            why_not = error.message
    if why_not:
        place = "; the summary of the run has the report" if has_summary else ""
        print_error("note", f"no comment: {why_not}{place}")


def _raise_if_bad(report: DiffReport, fail_on_missed_deadline: bool) -> None:
    """Raise SpecError, InfeasibleError or GuardTrippedError, the first that applies."""
    diff = report.diff
    if diff.invalid:
        first = diff.invalid[0]
        assert first.after is not None
        raise SpecError(first.after.problem, code="invalid", subject=first.path)
    if diff.late and fail_on_missed_deadline:
        raise InfeasibleError(f"no plan of {diff.late[0].path} keeps its deadline")
    if report.violations:
        raise GuardTrippedError(
            " ".join(report.violations), hint="raise the limit, or ask its owner to"
        )
