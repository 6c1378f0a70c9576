"""Whether this machine can run the job's command at all, asked before a node is launched."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from costopt.domain.errors import MissingExtraError
from costopt.domain.job import Job


def check_trainer(job: Job) -> None:
    """Raises MissingExtraError where the command needs PyTorch and there is none.

    Nodes are processes of this machine, and a Python script is started under torchrun.
    """
    program = Path(job.run[0]).name if job.run else ""
    if program.startswith(("python", "torchrun")) and find_spec("torch") is None:
        raise MissingExtraError(
            f"job {job.name!r} runs {program} under torchrun, and PyTorch is not installed",
            hint="pip install 'costopt[train]'",
        )
