"""Checks before the first launch: the store of checkpoints, and the trainer.

They test whether checkpoints can be stored where the job says, and whether this machine can run the
job's command at all.
"""

from __future__ import annotations

import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from costopt.domain.errors import MissingExtraError, SpecError, StoreError, install_hint
from costopt.domain.job import Job
from costopt.domain.runtime import CONTAINER_RUNTIMES
from costopt.domain.secret import SecretSource
from costopt.store import atomic_file
from costopt.store.host_secrets import host_secrets_folder, read_host_secret

GIB = 2**30


def check_checkpoint_storage(job: Job) -> None:
    """Raise StoreError where the folder cannot be written or has no room for a checkpoint.

    Only folders can be asked; another store says no when a trainer first saves.
    """
    folder = _folder(job)
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"\0")
            probe.flush()
        free_gib = shutil.disk_usage(folder).free / GIB
    except OSError as error:
        raise StoreError(
            f"job {job.name!r} cannot keep checkpoints in {folder}: {error.strerror}",
            hint=atomic_file.write_error_hint(error),
        ) from error
    size_gib = job.checkpoint.size_gib
    if free_gib < size_gib:
        raise StoreError(
            f"job {job.name!r} cannot keep checkpoints in {folder}: {free_gib:.3g} GiB are free, "
            f"one takes {size_gib:.3g} GiB",
            hint="free space on the file system, or choose another checkpoint.uri",
        )


def _folder(job: Job) -> Path | None:
    parts = urlsplit(job.checkpoint.uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if "://" in job.checkpoint.uri else Path(job.workdir, job.checkpoint.uri)


def check_trainer(job: Job) -> None:
    """Raises SpecError without the command's folder, or without a runtime for its image;
    MissingExtraError where PyTorch is lacking.

    Nodes are processes of this machine, and a Python script is started under torchrun.
    """
    if not Path(job.workdir).is_dir():
        raise SpecError(
            f"workdir of job {job.name!r}: {job.workdir} is not a folder on this machine",
            hint="correct workdir in the job file, or hand the job in from the folder of its code",
            code="not_a_folder",
        )
    if job.image is not None:
        if not any(map(shutil.which, CONTAINER_RUNTIMES)):
            raise SpecError(
                f"job {job.name!r} runs in image {job.image}, and this machine has neither "
                f"{' nor '.join(CONTAINER_RUNTIMES)}",
                hint="install podman: simulated nodes run here",
                code="no_runtime",
            )
        return
    program = Path(job.run[0]).name if job.run and job.array is None else ""
    if program.startswith(("python", "torchrun")) and find_spec("torch") is None:
        raise MissingExtraError(
            f"job {job.name!r} runs {program} under torchrun, and PyTorch is not installed",
            hint=install_hint("train"),
        )


def check_secrets(job: Job, source: SecretSource | None, nodes: str) -> None:
    """Raise SpecError where a secret has no name in the ``source`` that ``nodes`` read, None for
    nodes that read none, or where its file on this host cannot be used.

    What a cloud holds only nodes may read: whether it is there shows when they start.
    """
    for secret in job.secrets:
        name = None if source is None else secret.name_in(source)
        if source is None or name is None:
            reads = "no secrets" if source is None else f"secrets by the name under {source.value}"
            raise SpecError(
                f"{secret.label} of job {job.name!r} has no name for {nodes}, which read {reads}",
                hint=None if source is None else f"add {source.value}: NAME to {secret.label}",
                code="unreadable_secret",
            )
        if source is SecretSource.HOST:
            read_host_secret(host_secrets_folder(), job.tenant, name)
