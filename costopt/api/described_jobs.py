"""A job from what a person says of it, as `costopt init` asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from costopt.api.inputs import StrPath, bad_argument, check_account, check_instant, load_job
from costopt.domain.account import Account
from costopt.domain.job import Job
from costopt.spec import job_answers


def job(
    command: str | Sequence[str],
    *,
    takes: str,
    work: str = "",
    due: str | datetime | timedelta,
    checkpoint: StrPath = "checkpoints",
    gpus: str | None = None,
    name: str = "job",
    now: datetime | None = None,
    account: Account | StrPath | None = None,
    **fields: object,
) -> Job:
    """Return the job that runs a command, such as "torchrun train.py".

    ``takes`` is how long a unit takes on which GPUs, such as "40m per epoch on 1xA100", and
    ``work`` how much there is to do, such as "10 epochs"; without it ``takes`` is the time of the
    whole job, such as "6h on 8xH100". ``due`` is a duration from the start or a moment,
    without a zone by this machine's. ``gpus``, such as "8xH100", are those on which it may run.
    Others are the fields of a job file, ``now`` and ``account`` as for ``load_job``. Raise
    SpecError for what cannot be read, with what was expected.
    """
    begin_at = check_instant("now", now) or datetime.now(UTC)
    given: dict[str, object] = {"name": name, "checkpoint": checkpoint, "deadline": due}
    argument = ""
    try:
        argument = "command"
        given["run"] = job_answers.run_field(command) if isinstance(command, str) else list(command)
        argument = "takes"
        given |= job_answers.speed_fields(work, takes)
        argument = "due"
        if isinstance(due, str):
            given["deadline"], _ = job_answers.due_field(due, begin_at)
    except ValueError as error:
        raise bad_argument(argument, f"is not clear: {error}", "see docs/python.md") from None
    if gpus is not None:
        given["resources"] = {"gpu": gpus}
    return load_job({**given, **fields}, now=begin_at, account=check_account(account))
