"""The conversion of a SkyPilot task to a job file, with what it cannot express.

Fields are those of SkyPilot's task YAML (docs.skypilot.co, "SkyPilot YAML", 0.10).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from costopt.spec.catalog_names import gpu_model_error, gpu_models
from costopt.spec.job_draft import JobDraft, job_name, shell_command
from costopt.spec.yaml_document import Document, FieldPath, SpecFileError, read_document

TASK_KEYS = {"resources", "run", "setup", "num_nodes", "file_mounts", "envs", "workdir"}
RANKS = "export SKYPILOT_NODE_RANK=$RANK SKYPILOT_NUM_NODES=$WORLD_SIZE"
"""A node's rank and the number of nodes, which costopt sets under the names of torchrun."""
SET = ("SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES")
VARIABLE = re.compile(r"\bSKYPILOT_[A-Z_]+\b")
ADVICE = {
    "file_mounts": "cache: of the job file brings data to nodes, and checkpoint: is where it saves",
    "secrets": "secrets: of the job file names where nodes read them",
    "resources.zone": "the zone is chosen by price",
    "resources.instance_type": "instance_types: under resources: of the job file names it",
    "resources.disk_size": "root_gib: of the provider in the account file sets it",
    "resources.memory": "min_memory_gib: under resources: of the job file sets it",
    "resources.job_recovery": "a lost node is replaced, and the command is started again",
}
"""Where the rest belongs, by field."""


def is_sky_task(document: Document) -> bool:
    """Return whether a file is a SkyPilot task, not a job file."""
    own = {"work", "model", "array", "deadline", "throughput", "takes", "kind", "version"}
    return bool(document.values.keys() & TASK_KEYS) and not document.values.keys() & own


def convert_sky_task(path: Path) -> JobDraft:
    """Return the job of a task, without work, speed, deadline and checkpoints.

    Raise SpecFileError where the task has no command, or its GPUs cannot be read.
    """
    document = read_document(str(path))
    return _TaskConversion(path, document).draft()


@dataclass
class _TaskConversion:
    path: Path
    document: Document
    fields: dict[str, object] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def draft(self) -> JobDraft:
        """Return the job. Raise SpecFileError."""
        values = dict(self.document.values)
        run = values.pop("run", None)
        if not isinstance(run, str) or not run.strip():
            self._refuse(("run",), "is missing: a job needs a command")
        name = values.pop("name", None)
        self.fields["name"] = job_name(str(name) if name else self.path.stem)
        nodes = values.pop("num_nodes", 1)
        if not isinstance(nodes, int) or nodes < 1:
            self._refuse(("num_nodes",), f"expected a number of nodes, got {nodes!r}")
        self._read_resources(values.pop("resources", None) or {}, nodes)
        if isinstance(setup := values.pop("setup", None), str) and setup.strip():
            self.fields["setup"] = [setup.strip()]
        self._read_environment(values.pop("envs", None) or {})
        workdir = values.pop("workdir", None)
        if isinstance(workdir, str) and not workdir.startswith(("/", "~")):
            self.fields["workdir"] = workdir
        elif workdir is not None:
            self._leave_out(("workdir",), "only folders beside the job file are sent to nodes")
        for key in values:
            self._leave_out((key,), ADVICE.get(str(key), "it is not expressed"))
        self.fields["run"] = self._command(str(run).strip())
        return JobDraft(
            f"Of {self.path.name}, a SkyPilot task.",
            self.fields,
            {},
            tuple(self.left_out),
            tuple(self.options),
        )

    def _read_resources(self, said: Any, nodes: int) -> None:
        if not isinstance(said, Mapping):
            self._refuse(("resources",), "expected a mapping")
        resources = dict(said)
        asked = resources.pop("accelerators", None)
        gpus: dict[str, object] = {}
        if asked is not None:
            gpus = self._gpus(asked, nodes)
        if nodes > 1:
            gpus |= {"min_nodes": nodes, "max_nodes": nodes}
        if gpus:
            self.fields["resources"] = gpus
        self._read_places(resources)
        spot = resources.pop("use_spot", None)
        if spot is True:
            what = "costopt also uses on-demand where the deadline needs it; --spot restricts"
            self._leave_out(("resources", "use_spot"), what)
        elif spot is False:
            self.options.append("--on-demand")
        image = resources.pop("image_id", None)
        if isinstance(image, str) and image.startswith("docker:"):
            self.fields["image"] = image.removeprefix("docker:")
        elif image is not None:
            self._leave_out(("resources", "image_id"), "image: of the provider in the account file")
        for key in resources:
            why = ADVICE.get(f"resources.{key}", "pools are chosen by price and deadline")
            self._leave_out(("resources", key), why)

    def _read_places(self, resources: dict[str, Any]) -> None:
        """Take cloud and region out of the resources, as options."""
        infra = resources.pop("infra", None)
        parts = infra.split("/") if isinstance(infra, str) else []
        cloud = resources.pop("cloud", None) or (parts[0] if parts else None)
        region = resources.pop("region", None) or (parts[1] if len(parts) > 1 else None)
        if cloud and cloud != "*":
            self.options += ["--provider", str(cloud).lower()]
        if region and region != "*":
            self.options += ["--region", str(region)]
        if len(parts) > 2:
            self._leave_out(("resources", "infra"), ADVICE["resources.zone"])

    def _gpus(self, asked: Any, nodes: int) -> dict[str, object]:
        """Return the GPUs of all nodes as the job file says them."""
        at: FieldPath = ("resources", "accelerators")
        found = dict(_counted(asked))
        if not found or len(set(found.values())) > 1:
            self._refuse(at, f"expected GPUs such as H100:8, of one number, got {asked!r}")
        models = [self._model(at, name) for name in found]
        count = next(iter(found.values())) * nodes
        if len(models) == 1:
            return {"gpu": f"{count}x{models[0]}"}
        return {"gpu_models": models, "min_gpus": count, "max_gpus": count}

    def _model(self, at: FieldPath, name: str) -> str:
        """Return the catalogue's name of a GPU. SkyPilot leaves out the form: A100-80GB."""
        first, _, memory = name.partition("-")
        for model in gpu_models() if memory else ():
            parts = model.upper().split("-")
            if parts[0] == first.upper() and parts[-1] == memory.upper():
                return model
        if why := gpu_model_error(name):
            self._refuse(at, why)
        return name

    def _read_environment(self, said: Any) -> None:
        if not isinstance(said, Mapping):
            self._refuse(("envs",), "expected a mapping")
        environment = {str(name): str(value) for name, value in said.items() if value is not None}
        if environment:
            self.fields["env"] = environment
        for name in said.keys() - environment.keys():
            self._leave_out(("envs", name), "it has no value; add it to env: or secrets:")

    def _command(self, run: str) -> object:
        used = set(VARIABLE.findall(run))
        for name in sorted(used.difference(SET)):
            self._leave_out(("run",), f"{name} is not set on nodes")
        script = f"{RANKS}; {run}" if used else run
        return shell_command(script)

    def _leave_out(self, at: FieldPath, why: str) -> None:
        problem = self.document.problem(at, "", on_key=True)
        name = ".".join(map(str, at))
        self.left_out.append(f"{self.path.name}:{problem.line}: {name}: {why}")

    def _refuse(self, at: FieldPath, message: str) -> None:
        raise SpecFileError([self.document.problem(at, message)])


def _counted(asked: Any) -> Iterator[tuple[str, int]]:
    """Yield models and numbers of a text, a list or a mapping; of other values nothing."""
    if isinstance(asked, Mapping):
        asked = [f"{name}:{count}" for name, count in asked.items()]
    for each in asked if isinstance(asked, list) else [asked]:
        match = re.fullmatch(r"([A-Za-z][A-Za-z0-9-]*)(?::([1-9][0-9]{0,3}))?", str(each))
        if match is None:
            return
        yield match[1], int(match[2] or 1)
