"""`costopt init`: writes a commented job file to start from."""

from __future__ import annotations

from pathlib import Path

import click

from costopt.domain.errors import SpecError


@click.command()
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Write a commented job file to start from.

    DIR/job.yaml is an example job, ready for plan, what-if and backtest; DIR, by default the
    present folder, is created where it is missing. A job.yaml that exists is never overwritten.
    """
    from costopt.spec import STARTER_JOB

    path = folder / "job.yaml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(STARTER_JOB.read_text(encoding="utf-8"))
    except FileExistsError as error:
        raise SpecError(
            f"{path if path.exists() else folder} exists already",
            hint="name another folder: costopt init DIR",
            code="exists",
            subject=str(path),
        ) from error
    except OSError as error:
        raise SpecError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="check the folder and its permissions",
            code="unwritable",
            subject=str(path),
        ) from error
    click.echo(f"wrote {path}; next: costopt plan {path} --market sample", err=True)
