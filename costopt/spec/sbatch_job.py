"""The conversion of an sbatch script to a job file, with what a job file cannot express.

Slurm knows a job's time limit and nothing of its progress, so the work is that time on the GPUs
that the script names. The file says of each field which line it is from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from costopt.spec import sbatch_values as values
from costopt.spec.job_draft import JobDraft, job_name
from costopt.spec.sbatch_script import SbatchScript, read_script
from costopt.spec.yaml_document import VALUE_ERROR, SpecFileError, SpecProblem

Value = TypeVar("Value")
Fields = Iterator[tuple[str, object, str]]
"""Name, value and origin of each field."""

EXPRESSED = frozenset({
    "array", "begin", "chdir", "deadline", "export", "gpus", "gpus-per-node", "gres",
    "job-name", "mem", "nodes", "requeue", "time", "contiguous", "exclusive", "no-kill",
    "open-mode", "parsable", "quiet", "verbose", "wait-all-nodes",
})  # fmt: skip
"""Options that a job file has, or that change nothing on nodes of the job's own."""
OPTIONS = {"deadline": "deadline", "work": "time"}
"""The options that say these fields."""
REFUSED = {
    "clusters": "names other clusters: submit to one daemon",
    "dependency": "makes the job wait for others: submit it once they have finished",
    "gpus-per-socket": "does not say how many GPUs a node has: use --gpus-per-node",
    "gpus-per-task": "does not say how many GPUs a node has: use --gpus-per-node",
    "hold": "holds the job back: submit it once it is to run",
    "wrap": "belongs on the command line of sbatch",
}
LEFT_OUT = {
    "account": "tenant: of the job file names whose job it is",
    "error": "costopt logs prints it",
    "mail-type": "the daemon's webhooks report",
    "mail-user": "the daemon's webhooks report",
    "no-requeue": "a lost node is replaced, and the script is started again",
    "output": "costopt logs prints it",
    "partition": "pools are chosen by price and deadline",
    "qos": "costopt submit has --priority",
    "signal": "before a node goes, the script's processes get SIGTERM",
}
RANKS = (
    "export SLURM_NODEID=$RANK SLURM_PROCID=$RANK SLURM_NTASKS=$WORLD_SIZE "
    "SLURM_NNODES=$WORLD_SIZE SLURM_JOB_NUM_NODES=$WORLD_SIZE"
)
SRUN = (
    'srun() { while [[ $1 == -* ]]; do case $1 in -[nNcGtpJwm]) shift;; esac; shift; done; "$@"; }'
)
"""Each node runs the whole script, so that srun has only to run its command."""
PROGRAMS = {
    "module": "setup: of the job file prepares them",
    "sbcast": "cache: of the job file brings data to them",
    "scontrol": "MASTER_ADDR and MASTER_PORT are set",
}
PROGRAM = re.compile(rf"\b({'|'.join(PROGRAMS)})\b")
VARIABLE = re.compile(r"\bSLURM_[A-Z_]+\b")


def convert_script(
    path: Path, now: datetime, given: Collection[str] = (), may_lack: Collection[str] = ()
) -> JobDraft:
    """Return the job of a script, whose lines its origins name.

    The fields ``given`` are known from elsewhere, and those it ``may_lack`` are asked for:
    ``deadline`` and ``work`` need no option then. Raise SpecFileError with every option that
    prevents a job.
    """
    script = read_script(path)
    lacking = {name for name, option in OPTIONS.items() if option not in script.options}
    conversion = _Conversion(script, now, {*given, *lacking.intersection(may_lack)})
    found = list(conversion.fields())
    if conversion.problems:
        raise SpecFileError(conversion.problems)
    return JobDraft(
        f"Of {path.name}, an sbatch script, whose lines are named.",
        {name: value for name, value, _ in found},
        {name: origin for name, _, origin in found if origin},
        tuple(conversion.left_out()),
    )


@dataclass
class _Conversion:
    script: SbatchScript
    now: datetime
    given: Collection[str]
    problems: list[SpecProblem] = field(default_factory=list)

    def fields(self) -> Fields:
        """Yield the fields; collect problems."""
        for name in sorted(self.script.options.keys() & REFUSED.keys()):
            self._refuse(name, f"cannot be expressed: it {REFUSED[name]}")
        for name, option, example in (
            ("deadline", OPTIONS["deadline"], "now+24hours"), ("work", OPTIONS["work"], "12:00:00")
        ):  # fmt: skip
            if option not in self.script.options and name not in self.given:
                self._refuse(option, f"is missing: add #SBATCH --{option}={example}", "missing")
        name = self._text("job-name") or self.script.path.stem
        yield "name", job_name(name), self._origin("job-name")
        if begin := self._value("begin", self._to_moment):
            yield "start", begin, self._origin("begin")
        if "deadline" not in self.given:
            yield "deadline", self._value("deadline", self._to_moment), self._origin("deadline")
        yield from self._work()
        exported = (each.partition("=") for each in self._text("export").split(","))
        given = {name: value for name, equals, value in exported if equals}
        yield "env", {"SLURM_JOB_NAME": name} | given, self._origin("export")
        yield "workdir", self._text("chdir") or ".", self._origin("chdir")
        yield "run", ["bash", "-c", self._command()], "on each node"

    def left_out(self) -> Iterator[str]:
        """Yield what the file does not express, by line."""
        found = [
            (option.line, f"--{name}={option.value}".removesuffix("="), LEFT_OUT.get(name))
            for name, option in self.script.options.items()
            if name not in EXPRESSED
        ]
        known = f"{RANKS} SLURM_JOB_NAME SLURM_ARRAY_TASK_ID"
        for number, line in self.script.commands:
            unset = set(VARIABLE.findall(line)).difference(VARIABLE.findall(known))
            found += [(number, name, "is not set on nodes") for name in sorted(unset)]
            for name in PROGRAM.findall(line):
                found.append((number, name, f"nodes do not have it; {PROGRAMS[name]}"))
        for number, name, reason in sorted(found):
            yield f"{self.script.path.name}:{number}: {name}: {reason or 'cannot be expressed'}"

    def _work(self) -> Fields:
        duration_s = self._value("time", values.limit_s) or 1.0
        fewest, most = self._value("nodes", values.node_range) or (1, 1)
        gpu, gpus, per_node = self._gpus(fewest)
        resources: dict[str, object] = {"gpu_models": [gpu]}
        if memory_gib := self._value("mem", values.memory_gib):
            resources["min_memory_gib"] = memory_gib
        self._check_tasks(fewest)
        if array := self._value("array", values.array_indexes):
            if most > 1:
                self._refuse("array", "cannot be expressed where a task has several nodes")
            yield "array", {
                "parameters": {"SLURM_ARRAY_TASK_ID": array[0]}, "duration": duration_s,
                "parallel": f"1..{array[1]}", "gpus_per_task": gpus,
            }, self._origin("array", "time")  # fmt: skip
        else:
            if "work" not in self.given:
                origin = f"{self._origin('time')}, in seconds; a measured speed plans better"
                yield "work", {"amount": duration_s, "unit": "steps"}, origin
                yield "throughput", {"points": [{"gpu": gpu, "gpus": gpus, "units_per_s": 1}]}, ""
            yield "checkpoint", {"uri": "checkpoints"}, "where the training saves"
            resources |= {"min_gpus": gpus, "max_gpus": (per_node or gpus) * (most or 1)}
            if per_node:
                resources |= {"min_nodes": fewest, "max_nodes": most}
        origin = self._origin("nodes", "gres", "gpus-per-node", "gpus", "constraint", "mem")
        yield "resources", resources, origin

    def _gpus(self, nodes: int) -> tuple[str, int, int | None]:
        """Return the model, the GPUs of the smallest gang, and those of a node, None for any."""
        readers = {"gres": values.gres_gpus, "gpus-per-node": values.gpu_request,
                   "gpus": values.gpu_request}  # fmt: skip
        asked = ((name, self._value(name, read)) for name, read in readers.items())
        name, request = next(((n, r) for n, r in asked if r is not None), ("", None))
        if request is None:
            self._refuse("gpus-per-node", "is missing: costopt runs jobs on GPUs", "missing")
            return "", 1, None
        model = ""
        try:
            model = values.catalog_gpu(request[0]) if request[0] else self._constraint_gpu()
        except ValueError as error:
            self._refuse(name, str(error), "unknown_name")
        if name != "gpus":
            return model, request[1] * nodes, request[1]
        if request[1] % nodes:
            self._refuse(name, f"cannot be spread evenly over {nodes} nodes")
        return model, request[1], request[1] // nodes if "nodes" in self.script.options else None

    def _constraint_gpu(self) -> str:
        """Return the one GPU model among the features. Raise ValueError."""
        words = re.findall(r"[\w.-]+", self._text("constraint"))
        models = set(values.gpu_models_among(words))
        if len(models) != 1:
            raise ValueError("does not name the GPU model: write its type, such as gpu:h100:8")
        return models.pop()

    def _check_tasks(self, nodes: int) -> None:
        """Refuse several tasks of srun on a node, which would be one."""
        if any(re.search(r"\bsrun\b", line) for _, line in self.script.commands):
            for name, most in (("ntasks-per-node", 1), ("ntasks", nodes)):
                if (self._value(name, values.positive) or 1) > most:
                    message = "cannot be expressed: srun starts one task a node; use torchrun"
                    self._refuse(name, message)

    def _command(self) -> str:
        script = self.script.path.resolve()
        folder = (script.parent / self._text("chdir")).resolve()
        if not script.is_relative_to(folder):
            self._refuse("chdir", f"does not hold {script.name}, which nodes look for there")
            return ""
        uses_srun = any(re.search(r"\bsrun\b", line) for _, line in self.script.commands)
        prelude = [RANKS] * ("array" not in self.script.options) + [SRUN] * uses_srun
        return "; ".join([*prelude, f'. "./{script.relative_to(folder)}"'])

    def _to_moment(self, text: str) -> str:
        return values.to_moment(text, self.now)

    def _text(self, name: str) -> str:
        option = self.script.options.get(name)
        return "" if option is None else option.value

    def _value(self, name: str, read: Callable[[str], Value]) -> Value | None:
        """Return an option's value; None without it, or if it is refused."""
        if name not in self.script.options:
            return None
        try:
            return read(self._text(name))
        except ValueError as error:
            self._refuse(name, f"{self._text(name)!r}: {error}")
            return None

    def _origin(self, *names: str) -> str:
        """Return the options with their lines."""
        found = (self.script.options[name] for name in names if name in self.script.options)
        return ", ".join(f"{option.line}: --{option.name}" for option in found)

    def _refuse(self, name: str, message: str, code: str = VALUE_ERROR) -> None:
        option = self.script.options.get(name)
        line = 0 if option is None else option.line
        problem = SpecProblem(
            str(self.script.path), line, min(line, 1), f"--{name}", message, code)  # fmt: skip
        if problem not in self.problems:
            self.problems.append(problem)
