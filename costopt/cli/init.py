"""`costopt init`: writes a job file to start from, of answers or of another tool's file."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from costopt.cli.errors import print_error
from costopt.cli.options import (
    complete_file,
    gpus_option,
    provider_option,
    region_option,
    restrict,
)
from costopt.domain.account import UNLIMITED
from costopt.domain.errors import SpecError

if TYPE_CHECKING:
    from costopt.spec.job_draft import JobDraft

Answer = TypeVar("Answer")
Asked = Mapping[str, str | None]

JOB = "job.yaml"
COMMAND = "torchrun --standalone --nproc-per-node=auto train.py"
CHECKPOINT = "checkpoints"
DUE = "24h"
REQUIREMENTS = "requirements.txt"


@click.command()
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--from", "source", metavar="FILE", shell_complete=complete_file,
              type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A shell script, an sbatch script or a SkyPilot task to read.")  # fmt: skip
@click.option("--command", metavar="COMMAND", help="What each node runs: 'torchrun train.py'.")
@click.option("--work", metavar="AMOUNT", help="How much there is to do: '10 epochs'.")
@click.option("--takes", metavar="TIME", help="How long it takes: '40m per epoch on 1xA100'.")
@click.option("--checkpoint", metavar="PLACE",
              help="Where it saves: a folder, s3://BUCKET/PATH or gs://BUCKET/PATH.")  # fmt: skip
@click.option("--due", metavar="TIME", help="Until when: 'Mon 9:00', '36h' or a date.")
@gpus_option
@provider_option
@region_option
def init(
    folder: Path, source: Path | None, command: str | None, work: str | None, takes: str | None,
    checkpoint: str | None, due: str | None, gpus: str | None, providers: tuple[str, ...],
    regions: tuple[str, ...],
) -> None:  # fmt: skip
    """Write a job file to start from.

    On a terminal four questions are asked: the command, the work and how long it takes, where it
    saves, and until when. Options answer them beforehand. Elsewhere, and without options, DIR/
    job.yaml is a commented example job, ready for plan, what-if and backtest. DIR, by default the
    present folder, is created where it is missing. A job.yaml that exists is never overwritten.

    With --from, what a job file cannot express of FILE is listed on stderr.
    """
    from costopt.spec import STARTER_JOB

    path = folder / JOB
    _check_new(folder)
    restrict(providers, regions, None).check_names(UNLIMITED)
    answers = {"command": command, "work": work, "takes": takes, "checkpoint": checkpoint,
               "due": due, "gpus": gpus}  # fmt: skip
    terminal = sys.stdin.isatty() and sys.stderr.isatty()
    if source is None and not terminal and not any(answers.values()):
        _write(folder, STARTER_JOB.read_text(encoding="utf-8"))
        click.echo(f"wrote {path}; next: costopt plan {path} --market sample", err=True)
        return
    draft = _Interview(folder, source, answers, terminal=terminal).draft()
    for line in draft.left_out:
        print_error("note", f"not in the job file: {line}")
    _write(folder, draft.text)
    options = [*draft.options]
    options += ["--provider", ",".join(providers)] if providers else []
    options += ["--region", ",".join(regions)] if regions else []
    following = shlex.join(["costopt", "plan", str(path), *options])
    click.echo(f"wrote {path}; next: {following}", err=True)


class _Interview:
    """Collects the fields of a job: of a file, of options, and of answers on a terminal."""

    def __init__(self, folder: Path, source: Path | None, given: Asked, *, terminal: bool) -> None:
        self._folder = folder
        self._source = source
        self._given = given
        self._terminal = terminal
        self._now = datetime.now(UTC)

    def draft(self) -> JobDraft:
        """Return a job file that can be read. Raise SpecError for what is missing or wrong."""
        from costopt.spec.job_answers import check_place, run_field
        from costopt.spec.load import parse_job
        from costopt.spec.yaml_document import parse_document

        begun = self._begun()
        has_array = "array" in begun.fields
        fields: dict[str, object] = {}
        origins: dict[str, str] = {}
        if self._given["command"] or "run" not in begun.fields:
            fields["run"] = self._answer("command", "Command", run_field, COMMAND, required=True)
        if self._given["takes"] or not ("work" in begun.fields or has_array):
            fields |= {"throughput": None, **self._speed()}
            origins["takes"] = "costopt calibrate measures it"
        if self._given["checkpoint"] or not ("checkpoint" in begun.fields or has_array):
            fields["checkpoint"] = self._answer("checkpoint", "Saves to", check_place, CHECKPOINT)
        if self._given["due"] or "deadline" not in begun.fields:
            fields["deadline"], origins["deadline"] = self._answer("due", "Due", self._due, DUE)
        if self._given["gpus"]:
            fields["resources"] = {"gpu": self._given["gpus"]}
        if "setup" not in begun.fields and (self._folder / REQUIREMENTS).is_file():
            fields["setup"] = [f"python -m pip install -r {REQUIREMENTS}"]
        draft = begun.having(fields, origins)
        parse_job(parse_document(draft.text, str(self._folder / JOB)), self._now)
        return draft

    def _begun(self) -> JobDraft:
        """Return what the other tool's file says, or nothing but a name."""
        from costopt.spec.job_draft import JobDraft, job_name

        if self._source is not None:
            return self._read(self._source)
        head = "Written by costopt init; costopt schema job prints every field."
        return JobDraft(head, {"name": job_name(self._folder.resolve().name)}, {})

    def _read(self, source: Path) -> JobDraft:
        from costopt.spec.sbatch_job import convert_script
        from costopt.spec.sbatch_script import DIRECTIVE
        from costopt.spec.shell_script import convert_shell
        from costopt.spec.sky_task import convert_sky_task, is_sky_task
        from costopt.spec.yaml_document import read_document, read_text

        if source.suffix in (".yaml", ".yml"):
            if not is_sky_task(read_document(str(source))):
                raise SpecError(
                    f"{source} is not a SkyPilot task",
                    hint="init --from reads a shell script, an sbatch script or a SkyPilot task",
                    code="unknown_kind",
                )
            draft = convert_sky_task(source)
        elif any(line.startswith(DIRECTIVE) for line in read_text(str(source)).splitlines()):
            given = {"due": "deadline", "takes": "work"}
            known = {field for name, field in given.items() if self._given[name]}
            draft = convert_script(source, self._now, known, may_lack=("deadline", "work"))
        else:
            draft = convert_shell(source)
        folder = source.parent / str(draft.fields.get("workdir", "."))
        workdir = os.path.relpath(folder.resolve(), self._folder.resolve())
        return draft.having({"workdir": None if workdir == "." else workdir}, {})

    def _speed(self) -> dict[str, object]:
        """Return the fields of the work and of how long it takes. Raise SpecError."""
        from costopt.spec.job_answers import (
            EXAMPLE_TAKES,
            EXAMPLE_WORK,
            speed_fields,
            work_and_takes,
        )

        work, takes = self._given["work"], self._given["takes"]
        if self._terminal and not (work or takes):
            asked = f"{EXAMPLE_WORK}, {EXAMPLE_TAKES}"
            return _ask("Work and its time on GPUs", work_and_takes, asked)
        if not takes:
            raise SpecError(
                "--takes is missing: nothing says how long the job takes",
                hint=f"add --work '{EXAMPLE_WORK}' --takes '{EXAMPLE_TAKES}'",
                code="missing",
            )
        return _parsed("--work and --takes", takes, partial(speed_fields, work or ""))

    def _due(self, text: str) -> tuple[str, str]:
        from costopt.spec.job_answers import due_field

        return due_field(text, self._now)

    def _answer(
        self,
        name: str,
        question: str,
        parse: Callable[[str], Answer],
        default: str,
        *,
        required: bool = False,
    ) -> Answer:
        """Return the option's value, else the terminal's, else the default, which is said."""
        said = self._given[name]
        if said:
            return _parsed(f"--{name}", said, parse)
        if self._terminal:
            return _ask(question, parse, default)
        if required:
            hint = f"add --{name} '{default}'"
            raise SpecError(f"--{name} is missing", hint=hint, code="missing")
        print_error("note", f"--{name} was not given: {default}")
        return parse(default)


def _parsed(option: str, text: str, parse: Callable[[str], Answer]) -> Answer:
    try:
        return parse(text)
    except ValueError as error:
        raise SpecError(f"{option}: {error}", code="value_error") from None


def _ask(question: str, parse: Callable[[str], Answer], default: str) -> Answer:
    """Return the answer to a question, which is asked again until it can be read."""

    def check(text: str) -> Answer:
        try:
            return parse(text)
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    answer: Answer = click.prompt(question, default=default, value_proc=check, err=True)
    return answer


def _check_new(folder: Path) -> None:
    """Raise SpecError where there is a job file, or a file in the folder's place."""
    path = folder / JOB
    taken = path if os.path.lexists(path) else folder
    if taken == path or (os.path.lexists(folder) and not folder.is_dir()):
        raise SpecError(
            f"{taken} exists already",
            hint="name another folder: costopt init DIR",
            code="exists",
            subject=str(path),
        )


def _write(folder: Path, text: str) -> None:
    """Write the job file as a whole. Raise SpecError where it exists or cannot be written."""
    path = folder / JOB
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                path.unlink()
                raise
    except FileExistsError:
        _check_new(folder)
        raise
    except OSError as error:
        raise SpecError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="check the folder and its permissions",
            code="unwritable",
            subject=str(path),
        ) from error
