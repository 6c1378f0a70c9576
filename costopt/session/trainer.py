"""Whether this machine can run the job's command at all, asked before a node is launched."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from costopt.domain.errors import MissingExtraError, SpecError, install_hint
from costopt.domain.job import Job


def check_trainer(job: Job) -> None:
    """Raises SpecError without the command's folder, MissingExtraError where PyTorch is lacking.

    Nodes are processes of this machine, and a Python script is started under torchrun.
    """
    if not Path(job.workdir).is_dir():
        raise SpecError(
            f"workdir of job {job.name!r}: {job.workdir} is no folder on this machine",
            hint="correct workdir in the job file, or hand the job in from the folder of its code",
            code="not_a_folder",
        )
    program = Path(job.run[0]).name if job.run else ""
    if program.startswith(("python", "torchrun")) and find_spec("torch") is None:
        raise MissingExtraError(
            f"job {job.name!r} runs {program} under torchrun, and PyTorch is not installed",
            hint=install_hint("train"),
        )
