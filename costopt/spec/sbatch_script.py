"""An sbatch script as its options with their lines: what Slurm reads of it, before any meaning.

As for sbatch, options stand in lines that begin with ``#SBATCH``, before the first command; the
last of two counts; long ones may be shortened to what is unique.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from costopt.spec.fields import did_you_mean
from costopt.spec.yaml_document import SpecFileError, SpecProblem, read_text

DIRECTIVE = "#SBATCH"
SHORT = {
    "A": "account", "a": "array", "b": "begin", "B": "extra-node-info", "C": "constraint",
    "c": "cpus-per-task", "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile",
    "G": "gpus", "H": "hold", "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses",
    "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks", "O": "overcommit",
    "o": "output", "p": "partition", "q": "qos", "Q": "quiet", "S": "core-spec",
    "s": "oversubscribe", "t": "time", "v": "verbose", "w": "nodelist", "W": "wait",
    "x": "exclude",
}  # fmt: skip
VALUELESS = frozenset({
    "contiguous", "exclusive", "get-user-env", "hold", "ignore-pbs", "nice", "no-kill",
    "no-requeue", "overcommit", "oversubscribe", "parsable", "propagate", "quiet", "reboot",
    "requeue", "spread-job", "test-only", "use-min-nodes", "verbose", "wait",
})  # fmt: skip
"""Options that take no value, or one after ``=`` alone."""
LONG = VALUELESS.union(SHORT.values(), {
    "acctg-freq", "batch", "bb", "bbf", "cluster-constraint", "comment", "container",
    "cores-per-socket", "cpu-freq", "cpus-per-gpu", "deadline", "delay-boot", "export",
    "export-file", "gid", "gpu-bind", "gpu-freq", "gpus-per-node", "gpus-per-socket",
    "gpus-per-task", "gres", "gres-flags", "hint", "kill-on-invalid-dep", "mail-type",
    "mail-user", "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus",
    "network", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket",
    "open-mode", "power", "prefer", "priority", "profile", "reservation", "signal",
    "sockets-per-node", "switches", "thread-spec", "threads-per-core", "time-min", "tmp", "uid",
    "wait-all-nodes", "wckey", "wrap",
})  # fmt: skip
"""The options of sbatch 22.05 (sbatch(1)); a newer one is refused by name."""


@dataclass(frozen=True, slots=True)
class SbatchOption:
    """One option by its long name; ``value`` is "" where it has none."""

    name: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class SbatchScript:
    """A script: its options by name, and its commands, each with the number of its line."""

    path: Path
    options: Mapping[str, SbatchOption]
    commands: tuple[tuple[int, str], ...]


def read_script(path: Path) -> SbatchScript:
    """Return the script. Raise SpecFileError with every line that sbatch would not understand."""
    options: dict[str, SbatchOption] = {}
    problems: list[SpecProblem] = []
    commands: list[tuple[int, str]] = []

    def refuse(line: int, message: str, field: str = "") -> None:
        problems.append(SpecProblem(str(path), line, 1 if line else 0, field, message))

    lines = read_text(str(path)).splitlines()
    if not lines or not lines[0].startswith("#!"):
        refuse(1, "does not begin with #! and an interpreter, so that sbatch refuses it")
    for number, line in enumerate(lines[1:], 2):
        if line.startswith(DIRECTIVE) and commands:
            refuse(number, "comes after the first command, where sbatch ignores it", DIRECTIVE)
        elif line.startswith(DIRECTIVE):
            try:
                options |= {option.name: option for option in _options(line, number)}
            except ValueError as error:
                refuse(number, f"{error}".replace("No closing", "has no closing"), DIRECTIVE)
        elif line.strip() and not line.lstrip().startswith("#"):
            commands.append((number, line))
    if not commands:
        refuse(0, "contains no command")
    if problems:
        raise SpecFileError(problems)
    return SbatchScript(path, options, tuple(commands))


def _options(line: str, number: int) -> Iterator[SbatchOption]:
    """Yield the options of a line. Raise ValueError."""
    rest = line.removeprefix(DIRECTIVE)
    if rest.strip() in ("hetjob", "packjob"):
        raise ValueError("a job of several components is not one job: submit each on its own")
    if rest and not rest[0].isspace():
        raise ValueError(f"expected a space after {DIRECTIVE}")
    words = shlex.split(rest, comments=True)
    while words:
        word = words.pop(0)
        name, equals, value = _name_and_value(word)
        if name not in VALUELESS and not equals and not value:
            if not words:
                raise ValueError(f"--{name} has no value")
            value = words.pop(0)
        yield SbatchOption(name, value, number)


def _name_and_value(word: str) -> tuple[str, str, str]:
    """Return the long name, "=" if the word has one, and the value in the word. Raise ValueError"""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        found = [name] if name in LONG else sorted(each for each in LONG if each.startswith(name))
        if len(found) == 1 and name:
            return found[0], equals, value
        near = f", which is any of {', '.join(found)}" if name and found else ""
        which = near or did_you_mean(name, LONG)
        raise ValueError(f"sbatch has no option --{name}{which}")
    if not re.match(r"-[A-Za-z]", word):
        raise ValueError(f"{word!r} is not an option; quote a value with spaces")
    if word[1] not in SHORT:
        raise ValueError(f"sbatch has no option {word[:2]}")
    return SHORT[word[1]], "", word[2:].removeprefix("=")
