"""Which folders of the daemon's own machine a job from elsewhere may name."""

from __future__ import annotations

from pathlib import Path

from costopt.domain.errors import SpecError
from costopt.domain.job import Job


def check_local_paths(job: Job, allowed: tuple[Path, ...]) -> None:
    """Refuse a job whose code or checkpoints would lie in any other folder of this machine.

    Links are followed. What is no path (s3://…) passes. Raises SpecError.
    """
    named = [("workdir", job.workdir), ("checkpoint.uri", job.checkpoint.uri)]
    roots = tuple(root.resolve() for root in allowed)
    for field, place in named:
        if "://" in place and not place.startswith("file://"):
            continue
        path = Path(place.removeprefix("file://")).resolve()
        if not any(path.is_relative_to(root) for root in roots):
            told = ", ".join(str(root) for root in roots)
            raise SpecError(
                f"{field}: {place} is not in a folder that jobs from elsewhere may use",
                hint=f"put it into {told} on the daemon's machine, or use an object store",
                code="folder_not_allowed",
            )
