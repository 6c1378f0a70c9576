"""costopt validate"""

from __future__ import annotations

from datetime import UTC, datetime

import click

from costopt.cli.failure import tell
from costopt.cli.options import complete_file
from costopt.cli.output import Column, Format, Row, Table, output_option, show
from costopt.domain.errors import SpecError


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_file)
@output_option
@click.pass_context
def validate(context: click.Context, files: tuple[str, ...], output: str) -> None:
    """Check job, policy and account files.

    Every problem of every file is told with its line, column and field. A FILE may also be the
    name of a shipped policy. Exits with 2 where a file is wrong.
    """
    now = datetime.now(UTC)
    checked = [(file, *_checked(file, now)) for file in files]
    wrong = sum(error is not None for _, _, error in checked)
    if output == Format.TABLE:
        for file, kind, error in checked:
            if error is None:
                click.echo(f"{file}: a valid {kind}")
            else:
                tell("error", error.message, error.hint)
    else:
        show(_table(checked), output)
    context.exit(SpecError.exit_code if wrong else 0)


def _checked(file: str, now: datetime) -> tuple[str | None, SpecError | None]:
    """The file's kind, None where it cannot be told, and what is wrong with it.

    Each file is read once, so that it may be a pipe.
    """
    from costopt.cli.policies import checked, read_policy
    from costopt.spec import account_in, detect_kind, job_in, policy_in, shipped_policies
    from costopt.spec.document import read_document

    kind: str | None = None
    try:
        if file in shipped_policies():
            kind = "policy"
            read_policy(file)
            return kind, None
        document = read_document(file)
        kind = detect_kind(document)
        if kind == "policy":
            checked(file, policy_in(document))
        elif kind == "account":
            account_in(document)
        else:
            job_in(document, now)
    except SpecError as error:
        return kind, error
    return kind, None


def _table(checked: list[tuple[str, str | None, SpecError | None]]) -> Table:
    from costopt.spec import SpecFileError

    rows: list[Row] = []
    for file, kind, error in checked:
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
            rows.append({"file": file, "kind": kind, "valid": error is None, "message": message})
    columns = (
        Column("file", "File"),
        Column("kind", "Kind"),
        Column("valid", "Valid"),
        Column("line", "Line", right=True),
        Column("column", "Column", right=True),
        Column("field", "Field"),
        Column("message", "Problem"),
    )
    return Table("costopt.validate/1", "Checked files", columns, rows)
