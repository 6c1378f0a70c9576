"""A job file that is made of something else: its fields, where each is from, what it leaves out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

ORDER = (
    "name", "start", "deadline", "work", "takes", "array", "throughput", "checkpoint",
    "resources", "env", "image", "setup", "workdir", "run",
)  # fmt: skip
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(?:[./:]+[A-Za-z0-9_-]+)*|[0-9]+[a-z]+[A-Za-z0-9-]*")
LINE = re.compile(r"[A-Za-z0-9$(][^#:{}\[\]\n]*(?:[:#][^#:{}\[\]\s][^#:{}\[\]\n]*)*")
RESERVED = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")


@dataclass(frozen=True, slots=True)
class JobDraft:
    """The fields of a job file by name, and the origin of those that need one.

    ``left_out`` names what the file does not express, with its line in the source;
    ``options`` are those of ``costopt plan`` and ``run`` that express some of it.
    """

    head: str
    fields: Mapping[str, object]
    origins: Mapping[str, str]
    left_out: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def having(self, fields: Mapping[str, object], origins: Mapping[str, str]) -> JobDraft:
        """Return the draft with these fields in place of its own; None removes one."""
        merged = {**self.fields, **fields}
        kept = {name: value for name, value in merged.items() if value is not None}
        left = {name: said for name, said in self.origins.items() if name not in fields}
        return replace(self, fields=kept, origins={**left, **origins})

    @property
    def text(self) -> str:
        """Return the job file."""
        lines = [f"# {self.head}"] if self.head else []
        for name in sorted(self.fields, key=ORDER.index):
            origin = self.origins.get(name)
            line = f"{name}: {yaml_flow(self.fields[name])}"
            lines.append(f"{line}  # {origin}" if origin else line)
        return "\n".join(lines) + "\n"


def yaml_flow(value: Any, *, inner: bool = False) -> str:
    """Return a value as YAML in one line: with bare keys, words and whole numbers, else JSON."""
    if isinstance(value, Mapping):
        pairs = (f"{key}: {yaml_flow(each, inner=True)}" for key, each in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(yaml_flow(each, inner=True) for each in value) + "]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str) and value.lower() not in RESERVED:
        bare = WORD.fullmatch(value) if inner else LINE.fullmatch(value)
        if bare and value == value.strip() and not re.fullmatch(r"[0-9.eE+_:-]+", value):
            return value
    return json.dumps(value, ensure_ascii=False)


def job_name(text: str) -> str:
    """Return a text as the name of a job."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:63]
    return plain or "job"


def shell_command(text: str) -> str | list[str]:
    """Return a command as a line, or for the shell where it needs one."""
    needs_shell = re.search(r"[$`|&;<>(){}*?~\n]", text) or re.match(r"[A-Za-z_]\w*=", text)
    return ["bash", "-c", text] if needs_shell else text
