"""The conversion of a shell script that trains to a job file, with what it cannot express.

Its last command of torchrun, accelerate, deepspeed or Python trains. Lines before it that install
packages are the setup, ``cd`` is the folder and assignments are the environment.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from costopt.spec.job_draft import JobDraft, job_name, shell_command
from costopt.spec.yaml_document import SpecFileError, SpecProblem, read_text

TRAINERS = ("torchrun", "accelerate", "deepspeed", "python", "python3")
INSTALLERS = ("apt", "apt-get", "conda", "mamba", "uv")
KEYWORDS = ("if", "for", "while", "until", "case", "select", "function")
ENDS = ("fi", "done", "esac", "}")
SILENT = ("set", "echo", "printf", "true", ":", "date", "hostname", "nvidia-smi", "pwd")
"""Commands that change nothing for what comes after them, or only how the shell reports."""
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*|[0-9@*#])")
HERE = re.compile(r"\$\(dirname (?:--)? ?(?:\$0|\$\{?BASH_SOURCE(?:\[0\])?\}?)\)(?:/(.*))?")
ALWAYS_SET = ("HOME", "PATH", "PWD", "USER", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
ADVICE = {
    "source": "nodes have a Python of their own; setup: of the job file adds packages",
    "conda": "nodes have a Python of their own; setup: of the job file adds packages",
    "module": "nodes do not have it; setup: of the job file prepares them",
    "wget": "if nodes need it, add it to setup:, or bring it with cache:",
    "curl": "if nodes need it, add it to setup:, or bring it with cache:",
    "python": "it comes before the training; if each node needs it, add it to setup:",
}
ALIASES = {".": "source", "aws": "wget", "gsutil": "wget", "git": "wget", "rsync": "wget"}


def convert_shell(path: Path) -> JobDraft:
    """Return the job of a script, without work, speed, deadline and checkpoints.

    Raise SpecFileError where no line trains, or one that does stands in a loop or a condition.
    """
    reader = _ScriptReader(path)
    for number, line in _logical_lines(read_text(str(path))):
        reader.read(number, line)
    return reader.draft()


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with the number of the first, those that end in a backslash joined."""
    begun, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        begun = begun if parts else number
        if line.endswith("\\"):
            parts.append(line[:-1].strip())
            continue
        yield begun, " ".join([*parts, line.strip()]).strip()
        parts = []
    if parts:
        yield begun, " ".join(parts)


@dataclass
class _ScriptReader:
    path: Path
    depth: int = 0
    folder: PurePosixPath = field(default_factory=PurePosixPath)
    setup: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    trained: list[tuple[int, str]] = field(default_factory=list)
    left_out: list[tuple[int, str]] = field(default_factory=list)
    problems: list[SpecProblem] = field(default_factory=list)

    def read(self, number: int, line: str) -> None:
        """Read a line: simple commands one by one, others as a whole."""
        if not line or line.startswith("#"):
            return
        try:
            commands = _simple_commands(line)
        except ValueError as error:
            self._leave_out(number, line, f"is not understood: {error}".lower())
            return
        first = commands[0][0] if commands and commands[0] else ""
        opens = first in KEYWORDS or re.match(r"[A-Za-z_]\w* ?\(\)", line) is not None
        if opens or self.depth:
            self._read_block(number, line, opens=opens)
            return
        if len(commands) == 1 or all(_has_plain_words(words) for words in commands):
            for words in commands:
                self._read_command(number, words, line if len(commands) == 1 else "")
        elif any(_trainer(words) for words in commands):
            self.trained.append((number, line))
        else:
            self._leave_out(number, line, "is not one command")

    def _read_block(self, number: int, line: str, *, opens: bool) -> None:
        words = re.split(r"[\s;]+", line)
        if any(word.rpartition("/")[2] in TRAINERS for word in words):
            message = "trains in a loop, a condition or a function: name the command with --command"
            self.problems.append(SpecProblem(str(self.path), number, 1, "", message))
        if opens:
            self._leave_out(number, line, "loops, conditions and functions are not read")
            self.depth += 1
        if any(word in ENDS for word in words):
            self.depth -= 1

    def _read_command(self, number: int, words: list[str], line: str) -> None:
        said = line or shlex.join(words)
        assigned = _assignments(words)
        name = words[len(assigned)] if len(assigned) < len(words) else ""
        base = name.rpartition("/")[2]
        if not name:
            self._assign(number, assigned, said)
        elif name == "export":
            exported = words[words.index("export") + 1 :]
            self._assign(number, [ASSIGNMENT.fullmatch(w) for w in exported], said)
        elif name == "cd":
            self._enter(number, words, said)
        elif (install := _installs(words, said)) is not None:
            self.setup.append(install)
        elif base in TRAINERS:
            self.trained.append((number, said))
        elif name not in SILENT:
            self._leave_out(number, said, ADVICE.get(ALIASES.get(base, base), "is not expressed"))

    def _assign(self, number: int, assigned: list[re.Match[str] | None], said: str) -> None:
        if any(each is None or re.search(r"[$`]", each[2]) for each in assigned):
            self._leave_out(number, said, "only plain values are read; add it to env:")
            return
        self.environment |= {each[1]: each[2] for each in assigned if each is not None}

    def _enter(self, number: int, words: list[str], said: str) -> None:
        target = words[1] if len(words) == 2 else ""
        here = HERE.fullmatch(target.replace('"', ""))
        if here is not None:
            self.folder = PurePosixPath(here[1] or ".")
        elif not target or target.startswith(("/", "~")) or re.search(r"[$`]", target):
            self._leave_out(number, said, "only folders beside the script are sent to nodes")
        else:
            self.folder /= target

    def draft(self) -> JobDraft:
        """Return the job. Raise SpecFileError."""
        if not self.trained and not self.problems:
            message = f"has no command of {', '.join(TRAINERS)}: name yours with --command"
            self.problems.append(SpecProblem(str(self.path), 0, 0, "", message))
        if self.problems:
            raise SpecFileError(self.problems)
        for number, said in self.trained[:-1]:
            self._leave_out(number, said, ADVICE["python"])
        number, command = self.trained[-1]
        self._check_variables(number, command)
        workdir = str(self.folder)
        fields: dict[str, object] = {
            "name": job_name(self.path.stem),
            "run": shell_command(command),
        }
        fields |= {"setup": self.setup} if self.setup else {}
        fields |= {"env": self.environment} if self.environment else {}
        fields |= {} if workdir == "." else {"workdir": workdir}
        return JobDraft(
            f"Of {self.path.name}.",
            fields,
            {"run": f"line {number}"},
            tuple(f"{self.path.name}:{line}: {what}" for line, what in sorted(self.left_out)),
        )

    def _check_variables(self, number: int, command: str) -> None:
        """Say of each variable of the command that nodes do not set."""
        for name in dict.fromkeys(VARIABLE.findall(command)):
            if name not in self.environment and name not in ALWAYS_SET:
                what = "arguments of the script are" if not name.isidentifier() else "it is"
                self._leave_out(number, f"${name}", f"{what} not set on nodes; add it to env:")

    def _leave_out(self, number: int, said: str, why: str) -> None:
        shown = said if len(said) <= 60 else f"{said[:57]}…"
        self.left_out.append((number, f"{shown}: {why}"))


def _simple_commands(line: str) -> list[list[str]]:
    """Return the words of each command of a line, split at ``&&`` and ``;``. Raise ValueError."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    commands: list[list[str]] = [[]]
    for word in lexer:
        if word in ("&&", ";"):
            commands.append([])
        else:
            commands[-1].append(word)
    return [words for words in commands if words]


def _has_plain_words(words: list[str]) -> bool:
    return not any(re.fullmatch(r"[|&<>()]+", word) for word in words)


def _assignments(words: list[str]) -> list[re.Match[str] | None]:
    """Return the assignments with which a command begins."""
    found: list[re.Match[str] | None] = []
    for word in words:
        match = ASSIGNMENT.fullmatch(word)
        if match is None:
            break
        found.append(match)
    return found


def _trainer(words: list[str]) -> bool:
    rest = words[len(_assignments(words)) :]
    return bool(rest) and rest[0].rpartition("/")[2] in TRAINERS


def _installs(words: list[str], said: str) -> str | None:
    """Return a command that installs packages as nodes run it, None for any other."""
    if words[0] in ("pip", "pip3"):
        return f"python -m pip {said.partition(' ')[2]}"
    if words[1:3] == ["-m", "pip"]:
        return f"python -m pip {said.partition(' pip ')[2]}"
    plain = words[1:] if words[0] == "sudo" else words
    return said if plain and plain[0] in INSTALLERS and "install" in plain else None
