"""`costopt checkpoints`: lists, verifies, tags, branches and prunes checkpoints, and rolls back."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from costopt.cli.connection import OpenSource, source_options
from costopt.cli.options import complete_file, output_option, print_table
from costopt.domain.text import displayable_text
from costopt.formatting import minute_text, number_text
from costopt.render.table import Column, Table

if TYPE_CHECKING:
    from costopt.checkpoint.history import CheckpointHistory, HistoryEntry
    from costopt.checkpoint.identity import JobIdentity
    from costopt.checkpoint.manifest import Manifest

job_argument = click.argument("job", shell_complete=complete_file)
COLUMNS = (
    Column("name", "Checkpoint"),
    Column("step", "Step", right=True),
    Column("generation", "Generation", right=True, rank=2),
    Column("at", "Saved", minute_text),
    Column("size_gib", "GiB", number_text, right=True),
    Column("newest", "", lambda newest: "newest" if newest else ""),
    Column("labels", "Labels", fold_at=40),
    Column("tags", "Tags", fold_at=40),
    Column("parent", "From", rank=1),
    Column("base", "Delta to", rank=2),
    Column("mesh", "Mesh", rank=2),
    Column("code_revision", "Code", rank=3, detail=True),
    Column("data_revision", "Data", rank=3, detail=True),
    Column("policy", "Policy", rank=3, detail=True),
    Column("in_line", "In line", detail=True),
    Column("job", "Job", rank=3, detail=True),
    Column("uri", "URI", detail=True),
    Column("problem", "Problem", fold_at=40),
)
SUFFIXES = (".yaml", ".yml")
VERDICTS = (Column("name", "Checkpoint"), Column("verdict", "Verdict", fold_at=60))


@click.group()
def checkpoints() -> None:
    """List, verify, move and prune checkpoints, or roll back.

    JOB is a job file, the address of its checkpoints (a folder, s3://… or gs://…), or the name of a
    job that has saved, as a ledger or a daemon knows it. CHECKPOINT is a name or a tag that list
    shows.
    """


@checkpoints.command("list")
@job_argument
@source_options
@output_option
def list_(job: str, source: OpenSource, output: str) -> None:
    """List the checkpoints, the newest first, without reading all of them."""
    history = _history(job, source)
    rows = [_row(entry) for entry in history.list()]
    place = history.place.uri
    title = f"Checkpoints in {place}"
    print_table(Table("costopt.checkpoints/1", title, COLUMNS, rows, notes=_notes(rows)), output)


@checkpoints.command()
@job_argument
@click.argument("names", nargs=-1, metavar="[CHECKPOINT]...")
@source_options
@output_option
@click.pass_context
def verify(
    context: click.Context, job: str, names: tuple[str, ...], source: OpenSource, output: str
) -> None:
    """Read every byte of the checkpoints named, or of all; exit with 1 if one is damaged."""
    history = _history(job, source)
    chosen = names or tuple(entry.name for entry in history.list())
    found = [(name, history.verify(name)) for name in chosen]
    rows = [{"name": name, "verdict": problem or "whole"} for name, problem in found]
    title = f"Checkpoints in {history.place.uri}"
    print_table(
        Table("costopt.checkpoints.verify/1", title, VERDICTS, rows, notes=_notes(rows)), output
    )
    if any(problem is not None for _, problem in found):
        context.exit(1)


@checkpoints.command()
@job_argument
@click.argument("checkpoint")
@click.argument("tag")
@click.option("--remove", is_flag=True, help="Remove the tag.")
@source_options
def tag(job: str, checkpoint: str, tag: str, remove: bool, source: OpenSource) -> None:
    """Tag a checkpoint, so that it is retained."""
    history = _history(job, source)
    if not remove:
        history.tag(checkpoint, tag)
        _say(f"{checkpoint} is tagged {tag}")
    elif history.place.tags().get(tag) == str(history.resolve(checkpoint)):
        history.untag(tag)
        _say(f"{checkpoint} is not tagged {tag} any more")
    else:
        raise click.UsageError(f"{checkpoint} has no tag {tag}")


@checkpoints.command()
@job_argument
@click.argument("checkpoint")
@source_options
def rollback(job: str, checkpoint: str, source: OpenSource) -> None:
    """Resume training from an older checkpoint at the next start.

    A trainer that is running can save no more. What was the newest is tagged, and can be rolled
    back to as well.
    """
    head = _history(job, source).rollback(checkpoint)
    _say(
        f"training goes on from {head.line[0]}, as generation {head.generation} or later; what was "
        f"the newest is tagged before-rollback-{head.generation}"
    )


@checkpoints.command()
@job_argument
@click.argument("checkpoint")
@click.argument("place")
@source_options
def branch(job: str, checkpoint: str, place: str, source: OpenSource) -> None:
    """Copy a checkpoint to PLACE, from which another job then starts.

    PLACE is that job's file, whose checkpoint.uri must be empty, or an empty folder, s3://… or
    gs://…, which is then the place of the first job that saves there.
    """
    uri, identity = _job_place(place) if Path(place).is_file() else (place, None)
    branched = _history(job, source).branch(checkpoint, uri, identity)
    _say(f"{branched.names()[0]} is the first checkpoint in {branched.uri}")


@checkpoints.command("export")
@job_argument
@click.argument("checkpoint")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--to", "form", type=click.Choice(["safetensors", "dcp"]), required=True,
              help="The format to write.")  # fmt: skip
@source_options
def export_(job: str, checkpoint: str, folder: Path, form: str, source: OpenSource) -> None:
    """Write a sharded checkpoint into FOLDER for other programs, verified, with little memory.

    safetensors holds the weights alone, in files of 5 GB with Hugging Face's index; dcp, for
    torch.distributed.checkpoint, also the optimizer's state, and needs PyTorch.
    """
    from costopt.checkpoint.sharded.safetensors import export_safetensors
    from costopt.checkpoint.sharded.tensor_stream import open_source

    history = _history(job, source)
    checkpoint_source = open_source(history.place, history.resolve(checkpoint))
    write = export_safetensors if form == "safetensors" else _dcp_files().export_dcp
    for path in write(checkpoint_source, folder):
        click.echo(path)


@checkpoints.command("import")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.argument("place")
@click.option("--from", "form", type=click.Choice(["safetensors", "dcp"]), required=True,
              help="The format of PATH.")  # fmt: skip
@click.option("--step", type=click.IntRange(min=0), default=0, show_default=True,
              help="The step that training goes on from.")  # fmt: skip
def import_(path: Path, place: str, form: str, step: int) -> None:
    """Make PATH the first checkpoint in PLACE, an empty folder, s3://… or gs://….

    ShardedCheckpointer restores it onto any mesh; an optimizer without a saved state starts fresh.
    """
    from costopt.checkpoint.repository import CheckpointRepository
    from costopt.checkpoint.sharded.importing import import_tensors
    from costopt.checkpoint.sharded.safetensors import read_safetensors

    read = read_safetensors if form == "safetensors" else _dcp_files().read_dcp
    target = CheckpointRepository.open(place)
    name = import_tensors(target, read(path), step)
    _say(f"{name} is the first checkpoint in {target.uri}")


def _dcp_files() -> Any:
    """The command line does not import PyTorch, but what reads and writes its files does."""
    return importlib.import_module("costopt.train.dcp_files")


@checkpoints.command()
@job_argument
@click.option("--last", type=click.IntRange(min=1), default=3, help="Keep this many of the newest.")
@click.option("--every", type=click.IntRange(min=1), metavar="STEPS",
              help="Also keep those at multiples of this many steps.")  # fmt: skip
@click.option("--best", type=click.IntRange(min=0), default=0,
              help="Also keep this many with the lowest --metric.")  # fmt: skip
@click.option("--metric", default="loss", show_default=True,
              help="The label of checkpoints that --best compares.")  # fmt: skip
@click.option("--cold-after", type=click.IntRange(min=0), metavar="DAYS",
              help="Spare what the bucket moved to a cold class after so many days, until its "
                   "minimum duration there is over.")  # fmt: skip
@click.option("--apply", is_flag=True, allow_from_autoenv=False,
              help="Delete them. Without this flag, only list them.")  # fmt: skip
@source_options
def prune(
    job: str,
    last: int,
    every: int | None,
    best: int,
    metric: str,
    cold_after: int | None,
    apply: bool,
    source: OpenSource,
) -> None:
    """Delete untagged old checkpoints and incomplete saves."""
    from costopt.checkpoint.history import RetentionPolicy

    rule = RetentionPolicy(last, every, best, metric)
    doomed = _history(job, source).prune(rule, apply=apply, cold_after_days=cold_after)
    for name in doomed:
        click.echo(name)
    if not doomed:
        _say("there is nothing to remove")
    elif not apply:
        _say("nothing was removed: add --apply to do so")


def _history(job: str, source: OpenSource) -> CheckpointHistory:
    """Return the checkpoints of a job. Raise SpecError, LedgerError."""
    from costopt.checkpoint.history import CheckpointHistory
    from costopt.checkpoint.repository import KEY
    from costopt.domain.errors import SpecError

    if "://" in job:
        return CheckpointHistory.open(job)
    if Path(job).is_dir():
        is_place = "/" in job or (Path(job) / KEY).exists()
        return CheckpointHistory.open((None if is_place else _known_place(job, source)) or job)
    if Path(job).is_file():
        place, identity = _job_place(job)
        # A run on clouds saves in the account's store what was to lie beside the job file.
        is_missing = "://" not in place and not Path(place).exists()
        known = _known_place(identity.name, source) if is_missing else None
        return CheckpointHistory.open(known) if known else CheckpointHistory.open(place, identity)
    if "/" in job or Path(job).suffix in SUFFIXES:
        raise SpecError(
            f"{job}: there is no such file or folder", hint="check the path", code="missing"
        )
    return CheckpointHistory.open(_uri_of_run(job, source))


def _job_place(file: str) -> tuple[str, JobIdentity]:
    """Return where the job of a file saves, and its name there. Raise SpecError."""
    from costopt.controller.checkpoint_places import job_identity
    from costopt.spec.load import load_job

    job = load_job(file, datetime.now(UTC))
    return job.checkpoint.uri, job_identity(job)


def _known_place(job: str, source: OpenSource) -> str | None:
    """Return where a run of this name saves, None where none is known."""
    from costopt.domain.errors import CostoptError

    try:
        return _uri_of_run(job, source)
    except CostoptError:
        return None


def _uri_of_run(job: str, source: OpenSource) -> str:
    from costopt.domain.errors import LedgerError
    from costopt.domain.events import CheckpointCommitted

    with source() as runs:
        saved = next(runs.job(job).ledger.newest(CheckpointCommitted, job), None)
        if saved is None:
            raise LedgerError(
                f"job {job!r} has saved nothing that {runs.name} knows of",
                hint="name the job's file, or where its checkpoints are",
            )
    return saved[1].uri.rstrip("/").rpartition("/")[0]


def _notes(rows: Sequence[object]) -> tuple[str, ...]:
    return () if rows else ("There are none.",)


def _row(entry: HistoryEntry) -> dict[str, object]:
    row: dict[str, object] = {
        "name": entry.name,
        "newest": entry.is_newest,
        "in_line": entry.in_line,
        "tags": ", ".join(entry.tags),
        "uri": entry.uri,
        "problem": entry.problem or "",
    }
    manifest = entry.manifest
    if manifest is not None:
        row |= {
            "step": manifest.step,
            "generation": manifest.generation,
            "at": datetime.fromtimestamp(manifest.at, UTC),
            "size_gib": manifest.size_bytes / 2**30,
            "parent": manifest.parent or "",
            "base": "" if manifest.delta is None else manifest.delta.base,
            "mesh": _mesh(manifest),
            "job": None if manifest.identity is None else manifest.identity.name,
            "code_revision": manifest.origin.code_revision,
            "data_revision": manifest.origin.data_revision,
            "policy": manifest.origin.policy,
            "labels": displayable_text(", ".join(f"{n} {value}" for n, value in manifest.labels)),
        }
    return row


def _mesh(manifest: Manifest) -> str:
    """Return the dimensions over which the ranks of a sharded checkpoint were laid."""
    mesh = () if manifest.shards is None else manifest.shards.mesh
    return " × ".join(f"{name} {size}" for name, size in mesh)


def _say(text: str) -> None:
    click.echo(text, err=True)
