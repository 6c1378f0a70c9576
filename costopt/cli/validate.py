"""`costopt validate`: checks job, policy and account files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from costopt.cli.errors import print_error
from costopt.cli.many_jobs import yaml_files
from costopt.cli.options import complete_file, output_option, print_table
from costopt.domain.errors import SpecError
from costopt.render.table import Column, OutputFormat, Row, Table

if TYPE_CHECKING:
    from costopt.domain.account import Account
    from costopt.domain.job import Job
    from costopt.spec.yaml_document import Document

Checked = tuple[str, str | None, SpecError | None, "Job | None"]
"""A file, its kind, its problems, and its job; None where unknown, right, or not a job."""


@click.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE|FOLDER...", shell_complete=complete_file
)
@output_option
@click.pass_context
def validate(context: click.Context, files: tuple[str, ...], output: str) -> None:
    """Check job, policy and account files.

    Every problem of every file is reported with its line, column and field. A FOLDER stands for the
    .yaml and .yml files in it. A FILE may also be the name of a shipped policy. If account files
    among them name tenants, each job must belong to one of these. No two jobs may have one
    checkpoint place. What a job file leaves to its model is listed with its sources. Exits with 2
    if a file is wrong.
    """
    named = tuple(each for file in files for each in yaml_files(file) or (file,))
    checked = _checked(named, datetime.now(UTC))
    wrong = sum(error is not None for _, _, error, _ in checked)
    if output == OutputFormat.TABLE:
        for file, kind, error, job in checked:
            if error is None:
                click.echo(f"{file}: a valid {kind}")
                _print_derived(job)
            else:
                print_error("error", error.message, error.hint)
    else:
        print_table(_table(checked), output)
    context.exit(SpecError.exit_code if wrong else 0)


def _checked(files: Sequence[str], now: datetime) -> list[Checked]:
    """Return each file with its kind, None if that is unknown, and its problems."""
    from costopt.planning.transfer_times import size_questions

    accounts: list[Account] = []
    read = [(file, *_read(file, now, accounts)) for file in files]
    for _, _, _, job in read:
        for question in size_questions(job[0], now) if job else ():
            print_error("note", question)
    checked: list[Checked] = []
    for file, kind, error, job in read:
        before = [each for *_, each in checked if each is not None]
        problem = error or _foreign(job, accounts) or _shared_place(job, before, accounts)
        checked.append((file, kind, problem, job[0] if job else None))
    return checked


def _read(
    file: str, now: datetime, accounts: list[Account]
) -> tuple[str | None, SpecError | None, tuple[Job, Document] | None]:
    """Return the file's kind, its problems, and its job. An account is added to ``accounts``.

    Each file is read once, so that it may be a pipe.
    """
    from costopt.planning.request import check_policy, load_checked_policy
    from costopt.spec import (
        bundled_policies,
        detect_kind,
        parse_account,
        parse_planned_job,
        parse_policy,
    )
    from costopt.spec.yaml_document import read_document

    kind: str | None = None
    try:
        if file in bundled_policies():
            kind = "policy"
            load_checked_policy(file)
            return kind, None, None
        document = read_document(file)
        kind = detect_kind(document)
        if kind == "policy":
            check_policy(file, parse_policy(document))
        elif kind == "account":
            accounts.append(parse_account(document))
        else:
            return kind, None, (parse_planned_job(document, now), document)
    except SpecError as error:
        return kind, error, None
    return kind, None, None


def _foreign(job: tuple[Job, Document] | None, accounts: Sequence[Account]) -> SpecError | None:
    """Return the error of a job whose tenant one of the accounts does not name, or None."""
    from costopt.spec.load import check_tenant

    if job is None:
        return None
    try:
        for account in accounts:
            check_tenant(*job, account)
    except SpecError as error:
        return error
    return None


def _shared_place(
    job: tuple[Job, Document] | None, before: Sequence[Job], accounts: Sequence[Account]
) -> SpecError | None:
    """Return the error of a job whose checkpoint place is that of a job before it, or None."""
    from costopt.controller.checkpoint_places import check_place, is_folder_place

    has_store = any(account.store is not None for account in accounts)
    if job is None or (has_store and is_folder_place(job[0])):
        return None
    try:
        check_place(job[0], before)
    except SpecError as error:
        return error
    return None


def _print_derived(job: Job | None) -> None:
    """Write what the file leaves to its model."""
    from costopt.render.text_table import wrapped
    from costopt.views.derived import derived_notes

    for line in derived_notes(job) if job else ():
        click.echo("\n".join(wrapped(line)))


def _table(checked: list[Checked]) -> Table:
    from costopt.spec import SpecFileError
    from costopt.views.derived import derived_rows

    rows: list[Row] = []
    for file, kind, error, job in checked:
        if isinstance(error, SpecFileError):
            rows += [
                {
                    "file": file, "kind": kind, "valid": False, "line": p.line or None,
                    "column": p.column or None, "field": p.field or None, "message": p.message,
                }
                for p in error.problems
            ]  # fmt: skip
        else:
            message = error.message if error else None
            rows.append(
                {
                    "file": file, "kind": kind, "valid": error is None, "message": message,
                    "derived": derived_rows(job) if job else [],
                }
            )  # fmt: skip
    columns = (
        Column("file", "File"),
        Column("kind", "Kind"),
        Column("valid", "Valid"),
        Column("line", "Line", right=True),
        Column("column", "Column", right=True),
        Column("field", "Field"),
        Column("message", "Problem", fold_at=60),
        Column("derived", "Derived", detail=True),
    )
    return Table("costopt.validate/1", "Checked files", columns, rows)
