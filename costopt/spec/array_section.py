"""The section ``array`` of job.yaml, and its conversion to the domain's TaskArray."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from costopt.domain.array import StopRule, TaskArray, placeholder_names
from costopt.domain.job import CheckpointSpec, Phase, Resources, WorkAmount, WorkUnit
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.spec.fields import Count, DurationS, FileModel, Text, did_you_mean
from costopt.store.folder import opened_folder, read_plain

MAX_TASKS = 10_000
MAX_PARAMETER_BYTES = 4 << 20
MAX_VALUE_LENGTH = 1024
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
RESERVED_PREFIX = "COSTOPT_"


def _bounds(value: object) -> object:
    """``16`` and ``1..16`` as (fewest, most)."""
    match = re.fullmatch(r"(\d{1,5})(?:\.\.(\d{1,5}))?", str(value))
    if isinstance(value, bool) or match is None:
        raise PydanticCustomError("parallel", "expected a number of tasks or a range such as 1..16")
    most = int(match[2] or match[1])
    fewest = int(match[1]) if match[2] else 1
    if not 1 <= fewest <= most <= MAX_TASKS:
        raise PydanticCustomError("parallel", f"expected a range within 1..{MAX_TASKS}")
    return fewest, most


def _not_zero(value: float | dict[str, float]) -> float | dict[str, float]:
    if not all(value.values() if isinstance(value, dict) else (value,)):
        raise PydanticCustomError("duration", "expected a duration above 0")
    return value


Parallel = Annotated[
    tuple[int, int],
    BeforeValidator(_bounds),
    WithJsonSchema(
        {"type": ["string", "integer"], "pattern": r"^\d{1,5}(\.\.\d{1,5})?$", "minimum": 1}
    ),
]
TaskTime = Annotated[DurationS | dict[Text, DurationS], AfterValidator(_not_zero)]
TimeLimit = Annotated[DurationS, AfterValidator(_not_zero)]
Grid = dict[Text, Annotated[list[str | int | float | bool], Field(min_length=1)]]


class FailSection(FileModel):
    """When failed tasks fail the job."""

    max: Annotated[int, Field(ge=0, le=MAX_TASKS)] = Field(
        default=0, description="tasks that may fail for good; one more fails the job"
    )


class StopSection(FileModel):
    """Ends the array early by a figure of a task's result."""

    metric: Text = Field(description="a number of the results, by its key")
    above: float | None = Field(default=None, description="end once a result has at least this")
    below: float | None = Field(default=None, description="end once a result has at most this")


class ArraySection(FileModel):
    """Work that is many independent tasks, each a start of the command."""

    tasks: Count | None = Field(
        default=None, description="how many; default: one for each row of parameters"
    )
    parameters: Text | Grid | None = Field(
        default=None,
        description="a CSV file with a row for each task, relative to this file; or lists of "
        "values by name, all combinations of which are tasks",
    )
    duration: TaskTime = Field(description="how long a task takes, or how long by GPU model")
    parallel: Parallel = Field(description="how many tasks at once, such as 1..16")
    gpus_per_task: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1, description="GPUs of a node that each task has for itself"
    )
    retries: Annotated[int, Field(ge=0, le=100)] = Field(
        default=2, description="how often a failed task is started again; lost nodes do not count"
    )
    timeout: TimeLimit | None = Field(
        default=None,
        description="kill a task that runs longer; it counts as failed. Default: no limit",
    )
    fail: FailSection = Field(default=FailSection(), description="when failed tasks fail the job")
    stop: StopSection | None = Field(default=None, description="when to end early")


class ParametersError(ValueError):
    """The parameters cannot be used. The text never quotes the file: it may be another's."""


def task_array(section: ArraySection, folder: Path) -> TaskArray:
    """Return the array. Raise ParametersError where parameters and tasks contradict."""
    names, rows = _parameters(section.parameters, folder)
    tasks = section.tasks if section.tasks is not None else len(rows)
    if section.tasks is None and section.parameters is None:
        raise ParametersError("expected tasks or parameters")
    if names and tasks != len(rows):
        raise ParametersError(f"{tasks} tasks, but {len(rows)} rows of parameters")
    stop = section.stop
    if stop is not None and (stop.above is None) == (stop.below is None):
        raise ParametersError("stop needs either above or below")
    if section.timeout is not None and section.timeout < _max_duration_s(section.duration):
        raise ParametersError("timeout is shorter than duration: no task could end")
    return TaskArray(
        tasks=tasks,
        gpus_per_task=section.gpus_per_task,
        retries=section.retries,
        timeout_s=section.timeout,
        max_failures=section.fail.max,
        names=names,
        rows=rows,
        stop=None if stop is None else StopRule(stop.metric, stop.above, stop.below),
    )


def placeholder_problems(command: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with names in braces that are none of the parameters: a task would get
    them as they are."""
    found = (name for word in command for name in placeholder_names(word))
    for name in dict.fromkeys(name for name in found if name not in names):
        near = did_you_mean(name, names)
        known = f"; the parameters are {', '.join(names)}" if names and not near else ""
        yield (
            f"{{{name}}} is not a parameter of the tasks{near}{known}; the number of a task is in "
            f"COSTOPT_TASK, and {{{{{name}}}}} stands for {{{name}}} itself"
        )


def _max_duration_s(duration: float | Mapping[str, float]) -> float:
    return max(duration.values()) if isinstance(duration, Mapping) else duration


Rows = tuple[tuple[str, ...], ...]


def _parameters(said: str | Mapping[str, Sequence[object]] | None, folder: Path) -> tuple[
    tuple[str, ...], Rows
]:  # fmt: skip
    if said is None:
        return (), ()
    if isinstance(said, str):
        header, *found = _csv_lines(said, folder) or [[]]
        names, rows = tuple(header), tuple(tuple(row) for row in found)
    else:
        names = tuple(said)
        _check_count(said)
        rows = tuple(itertools.product(*([_text(value) for value in said[n]] for n in names)))
    _check(names, rows)
    return names, rows


def _check_count(grid: Mapping[str, Sequence[object]]) -> None:
    count = 1
    for values in grid.values():
        count *= len(values)
        if count > MAX_TASKS:
            raise ParametersError(f"more than {MAX_TASKS:,} combinations")


def _check(names: tuple[str, ...], rows: Rows) -> None:
    for number, name in enumerate(names, 1):
        if not NAME.fullmatch(name) or name.upper().startswith(RESERVED_PREFIX):
            raise ParametersError(
                f"the name of column {number} is not a variable's: expected letters, digits and _, "
                f"not beginning with a digit or {RESERVED_PREFIX}"
            )
    if len(set(names)) < len(names):
        raise ParametersError("two columns have the same name")
    if not names or not 1 <= len(rows) <= MAX_TASKS:
        raise ParametersError(f"expected a header and 1 to {MAX_TASKS:,} rows")
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise ParametersError(f"row {number} has {len(row)} values for {len(names)} columns")
        if any(len(value) > MAX_VALUE_LENGTH or "\0" in value for value in row):
            raise ParametersError(
                f"a value in row {number} is longer than {MAX_VALUE_LENGTH} characters or holds a "
                "null byte"
            )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _csv_lines(name: str, folder: Path) -> list[list[str]]:
    """The lines that are not empty. A path that leaves the folder is refused: a daemon reads it."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith(("/", "~")) or ".." in parts:
        raise ParametersError("expected the path of a CSV file below the job file's folder")
    try:
        with opened_folder(folder, parts[:-1]) as place, read_plain(place / parts[-1]) as file:
            data = file.read(MAX_PARAMETER_BYTES + 1)
    except OSError as error:
        raise ParametersError(f"cannot read {name}: {error.strerror or error}") from None
    if len(data) > MAX_PARAMETER_BYTES:
        raise ParametersError(f"{name} is larger than {MAX_PARAMETER_BYTES >> 20} MiB")
    try:
        lines = csv.reader(io.StringIO(data.decode("utf-8-sig")), strict=True)
        return [[cell.strip() for cell in line] for line in lines if line]
    except (ValueError, csv.Error):
        raise ParametersError(f"{name} is not a CSV file in UTF-8") from None


@dataclass(frozen=True, slots=True)
class JobParts:
    """What the jobs of arrays and of training get from different fields of their files."""

    work: WorkAmount
    resources: Resources
    throughput: Throughput
    checkpoint: CheckpointSpec
    phases: tuple[Phase, ...]
    array: TaskArray | None = None


def array_parts(
    array: TaskArray,
    parallel: tuple[int, int],
    task_s: Mapping[str, float],
    resources: Resources,
    workdir: str,
) -> JobParts:
    """Return an array as work that any number of GPUs shares, by the time of a task on each model.

    Nothing is saved within a task: each start of nodes counts half of one, which is lost or waited
    for on the nodes before.
    """
    gpus = array.gpus_per_task
    fewest, most = parallel
    return JobParts(
        work=WorkAmount(float(array.tasks), WorkUnit.TASKS),
        resources=replace(
            resources,
            max_nodes=most * gpus,
            min_gpus=min(fewest, array.tasks) * gpus,
            max_gpus=most * gpus,
            gpu_multiple=gpus,
            useful_gpus=array.tasks * gpus,
        ),
        throughput=Throughput(
            tuple(ThroughputSample(gpu, gpus, 1 / time_s) for gpu, time_s in task_s.items()),
            independent_gpus=array.tasks * gpus,
        ),
        checkpoint=CheckpointSpec(workdir, save_s=0.0, restore_s=max(task_s.values()) / 2),
        phases=(Phase("all", 1.0, 1, most * gpus),),
        array=array,
    )
