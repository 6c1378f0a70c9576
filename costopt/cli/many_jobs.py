"""What `costopt plan` and `costopt what-if` do with several jobs, and beside a daemon's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click
from click.core import ParameterSource

from costopt.cli.connection import connect
from costopt.cli.errors import print_error
from costopt.cli.options import print_table
from costopt.domain.errors import InfeasibleError, SpecError, StaleDataError

if TYPE_CHECKING:
    from costopt.api.many_jobs import AccountPlanResult, AccountWhatIfResult
    from costopt.spec import FileKind

SUFFIXES = (".yaml", ".yml")


def find_job_files(places: Sequence[str]) -> tuple[str, ...]:
    """Return the files, and in place of each folder the job files in it, by name.

    A note names the other files of a folder. Raise SpecError for a folder without any job.
    """
    return tuple(dict.fromkeys(file for place in places for file in _files(place)))


def yaml_files(place: str) -> tuple[str, ...]:
    """Return the YAML files in a folder, by name; none of what is not a folder."""
    folder = Path(place)
    if not folder.is_dir():
        return ()
    return tuple(str(path) for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES)


def _files(place: str) -> Sequence[str]:
    if not Path(place).is_dir():
        return (place,)
    kinds = {file: _kind(file) for file in yaml_files(place)}
    jobs = [file for file, kind in kinds.items() if kind == "job"]
    if not jobs:
        raise SpecError(
            f"there is no job file in {place}",
            hint="job files end in .yaml or .yml; costopt init writes one",
            code="missing",
        )
    others = [
        f"{Path(file).name} (--{kind} {file} uses it)"
        for file, kind in kinds.items()
        if kind != "job"
    ]
    if others:
        print_error("note", f"left out of {place}: {', '.join(others)}")
    return jobs


def _kind(file: str) -> FileKind:
    """What a file in a folder is; one that cannot be read is a job, so that its error shows."""
    from costopt.spec import detect_kind
    from costopt.spec.yaml_document import read_document

    try:
        return detect_kind(read_document(file))
    except SpecError:
        return "job"


def check_only(context: click.Context, *allowed: str) -> None:
    """Raise UsageError for an option of the command line that does not go with --server."""
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "")
        if parameter.name not in allowed and given is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"{parameter.opts[0]} does not go with --server: the daemon plans with its own "
                "market and account"
            )


def refuse_options(*names: str) -> None:
    """Raise UsageError for an option of the command line that is for one job."""
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and given is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} is for one job")


def print_account_plan(result: AccountPlanResult, output: str) -> None:
    """Write the notes to stderr and the tables to stdout. Raise InfeasibleError if some job is not
    served."""
    for note in result.notes:
        print_error("note", note)
    print_table(result.table(), output)
    if not result.is_feasible:
        late = ", ".join(each.job for each in result.unserved)
        raise InfeasibleError(
            f"no plan of all {len(result.made.jobs)} jobs serves {late}",
            hint="the notes below the table say why, and what would serve them",
            code="infeasible",
        )


def print_account_what_if(result: AccountWhatIfResult, output: str) -> None:
    """Write the notes to stderr and the totals to stdout. Raise InfeasibleError if no scenario
    serves all jobs, StaleDataError if every price is too old."""
    for note in result.notes:
        print_error("note", note)
    print_table(result.table(), output)
    raise_if_stale(result.scenarios)
    if not any(each.made is not None and not each.made.unserved for each in result.scenarios):
        raise InfeasibleError(f"no scenario finishes all {len(result.jobs)} jobs in time")


class _Dated(Protocol):
    @property
    def stale(self) -> bool: ...
    @property
    def why_not(self) -> str | None: ...


def raise_if_stale(scenarios: Sequence[_Dated]) -> None:
    """Raise StaleDataError if the prices of every scenario are too old."""
    stale = [scenario.why_not or "" for scenario in scenarios if scenario.stale]
    if len(stale) == len(scenarios):
        raise StaleDataError(f"no scenario can be planned: {stale[0]}")


def print_impact(
    files: Sequence[str], policy: str, server: str, token_file: Path | None, output: str
) -> None:
    """Write what a new job would change for the jobs of a daemon. Raise SpecError for several
    files, InfeasibleError if some job would not be served, and as ``connect``."""
    from costopt.cli.jobs import read_documents
    from costopt.views.impact import impact_table

    if len(files) != 1:
        raise click.UsageError("--server plans one new job at a time")
    client = connect(server, token_file)
    documents = read_documents(client, server, files[0], policy)
    answer = client.send("POST", "plans", body=documents)
    print_table(impact_table(answer), output)
    late = [row["job"] for row in answer["jobs"] if not row["served"]]
    if late:
        raise InfeasibleError(
            f"beside {answer['job']} no plan found serves {', '.join(late)}",
            hint="costopt submit --anyway would submit it all the same",
            code="infeasible",
        )
