"""Every command line of costopt that the project shows exists, with its options and their values.

What the pages' console blocks hold is also run, in test_readme.py.
"""

# Two readings. In code (fenced blocks and `code` of pages, a line of a script or a workflow that
# begins with costopt, a list of words) the whole command line is parsed as click does; values in
# capitals, with a variable or a placeholder in them are not looked at. In prose (strings of the
# product, comments, alerts) "costopt WORD" counts where WORD is a command or was one, up to its
# options, as what follows may be a sentence.

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path

import click
import pytest

from costopt.cli.main import cli
from docs.generated.commands import commands
from tests.docs.test_readme import PAGES, ROOT

TREE = dict(commands())
TEXTS = sorted(
    path
    for pattern in (
        "deploy/**/*", "terraform/**/*", "templates/**/*", ".github/**/*", ".ci/*", "examples/**/*",
        "policies/*", "action.yml", "Makefile", "mkdocs.yml", "costopt/**/*.j2",
    )
    for path in ROOT.glob(pattern)
    if path.suffix in (".yml", ".yaml", ".tf", ".py", ".sh", ".ipynb", ".j2", ".service", "")
    and path.is_file() and "__pycache__" not in path.parts
)  # fmt: skip
PRODUCT = sorted([*ROOT.glob("costopt/**/*.py"), *ROOT.glob("providers/**/*.py")])

FENCED = re.compile(
    r"^ *```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^ *```$", re.DOTALL | re.MULTILINE
)
ROOT_OPTIONS = [word for option in cli.params for word in option.opts] + ["-h", "--help"]
SHELLS = ("bash", "sh", "yaml", "dockerfile", "cron")
INLINE = re.compile(r"``?([^`]+)``?")
CALL = re.compile(r"(?<![\w/.@-])costopt +(?!costopt\b)(?=[a-z-])")
COMMENT = re.compile(r"(?:^|\s)#\s.*")
AT_START = re.compile(r"^[\s\-$>!\"'{]*(?:exec |sudo |run: *)?(?=costopt +[a-z-])")
WORDS = re.compile(r'\["costopt"(?P<words>(?:, "[^"\n]*")+)\]')
PLACEHOLDER = re.compile(r"[A-Z$<{(…]|\.\.\.")
PROSE_OPTION = re.compile(r"--[a-z][a-z-]*")


class WrongCommandError(Exception):
    """A command line that costopt would refuse."""


def _resolve(words: Sequence[str]) -> tuple[str, click.Command, list[str]]:
    """Return the path and the command that the first words name, and the others."""
    path, rest = "costopt", list(words)
    while rest and rest[0] in ("--debug", "--config"):
        del rest[: 2 if rest[0] == "--config" else 1]
    while rest and f"{path} {rest[0]}" in TREE:
        path = f"{path} {rest.pop(0)}"
    if path == "costopt daemon" and rest[:1] not in ([], ["--help"]):
        path = "costopt daemon run"
    return path, TREE[path], rest


def check_call(words: Sequence[str], *, whole: bool) -> None:
    """Raise WrongCommandError unless costopt takes the words; ``whole``: with all that it needs."""
    path, command, rest = _resolve(words)
    if isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        raise WrongCommandError(f"{path}: there is no command {rest[0]!r}")
    context = click.Context(command, info_name=path, allow_extra_args=not whole)
    try:
        parser = command.make_parser(context)
        try:
            given, left, order = parser.parse_args([*rest])
        except click.BadOptionUsage:
            given, left, order = parser.parse_args([*rest, "X"])
        # What was not given is None, (), or a member of click's own enumeration.
        found = {key for key, value in given.items() if value and not isinstance(value, Enum)}
        for option in dict.fromkeys(order):
            if option.name in found:
                _check_value(context, option, given[option.name])
        missing = [each for each in command.params if each.required and each.name not in found]
        if left:
            raise WrongCommandError(f"{path}: unexpected {left[0]!r}")
        if whole and missing and "--help" not in rest:
            raise WrongCommandError(f"{path}: {missing[0].human_readable_name} is missing")
    except click.UsageError as error:
        raise WrongCommandError(f"{path}: {error.format_message()}") from None


def _check_value(context: click.Context, option: click.Parameter, value: object) -> None:
    values = value if isinstance(value, list | tuple) else [value]
    read = not isinstance(option.type, click.Path) and option.name != "help"
    if read and not any(each is None or PLACEHOLDER.search(str(each)) for each in values):
        option.process_value(context, value)


def calls_in_shell(text: str) -> Iterator[list[str]]:
    """Yield the words of each call of costopt in shell commands."""
    for line in text.replace("\\\n", " ").splitlines():
        for match in CALL.finditer(line):
            before, words = line[: match.start()].split(" "), _words(line[match.end() :])
            is_value = (
                len(before) > 1 and not before[-1] and re.match("--?[a-z]|import$", before[-2])
            )
            is_name = words and words[0].startswith("-") and words[0] not in ROOT_OPTIONS
            if not is_value and not is_name:  # --name costopt; logs costopt --project
                yield words


def _words(text: str) -> list[str]:
    """Return the words up to the end of the simple command."""
    text = re.sub(r"\[(--?[^\]]*|[A-Z]+)\]", r"\1", text)  # [--node NODE], as a usage has it
    reader = shlex.shlex(text, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    words: list[str] = []
    try:
        for word in reader:
            if set(word) <= set(";&|()<>") or word.startswith(("…", "...")):
                break
            words.append(word)
    except ValueError:  # a quotation that ends elsewhere
        pass
    if words and words[-1].isdigit() and re.search(rf"\b{words[-1]}>", text):
        words.pop()  # the 2 of 2>
    return [word.rstrip("`\"'},") for word in words]


def check_code(text: str, *, whole: bool) -> Iterator[str]:
    for words in calls_in_shell(COMMENT.sub("", text)):
        yield from _fault(words, whole=whole)
    for comment in COMMENT.findall(text):
        yield from check_prose(comment)


def check_prose(text: str) -> Iterator[str]:
    for match in CALL.finditer(text):
        words = text[match.end() :].split()
        named: list[str] = []
        for word in (each.strip(".,;:()`'\"") for each in words):
            option = PROSE_OPTION.fullmatch(word)
            if not (option and named) and f"{' '.join(['costopt', *named])} {word}" not in TREE:
                break
            named.append(word)
        first = words[0].strip(".,;:()`'\"")
        if named:
            yield from _fault(named, whole=False)
        elif first in cli.moved:
            yield f"costopt {first}: it is costopt {cli.moved[first]}"


def _fault(words: Sequence[str], *, whole: bool) -> Iterator[str]:
    try:
        check_call(words, whole=whole)
    except WrongCommandError as error:
        yield f"{' '.join(['costopt', *words])} → {error}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    blocks = [(match["language"], match["text"]) for match in FENCED.finditer(text)]
    faults = [fault for block in blocks for fault in _faults_of_block(*block)]
    assert [*faults, *_faults_of_text(FENCED.sub("", text))] == []


def _faults_of_block(language: str, text: str) -> Iterator[str]:
    for line in text.replace("\\\n", " ").splitlines():
        is_code = language in SHELLS or (language == "console" and line.startswith("$ "))
        yield from check_code(line, whole=True) if is_code else check_prose(line)


def _faults_of_text(text: str) -> Iterator[str]:
    for match in INLINE.finditer(text):
        yield from check_code(" ".join(match[1].split()), whole=False)
    yield from check_prose(INLINE.sub("", text))


def test_the_commands_of_other_files_exist() -> None:
    faults = []
    for path in TEXTS:
        text = path.read_text("utf-8", errors="ignore")
        if path.suffix == ".ipynb":
            cells = json.loads(text)["cells"]
            text = "\n".join("".join(cell["source"]) for cell in cells)
        found = [*_faults_of_lines(text), *_faults_of_lists(text)]
        faults += [f"{path.relative_to(ROOT)}: {fault}" for fault in found]
    assert faults == []


def _faults_of_lines(text: str) -> Iterator[str]:
    for line in text.replace("\\\n", " ").splitlines():
        start = AT_START.match(line)
        yield from check_prose(line) if start is None else check_code(line, whole=True)


def _faults_of_lists(text: str) -> Iterator[str]:
    for match in WORDS.finditer(text):
        yield from _fault(re.findall(r'"([^"]*)"', match["words"]), whole=True)


def test_the_commands_that_the_product_names_exist() -> None:
    faults = []
    for path in PRODUCT:
        for text in _strings(ast.parse(path.read_text("utf-8"))):
            faults += [f"{path.relative_to(ROOT)}: {fault}" for fault in _faults_of_text(text)]
    assert faults == []


def _strings(tree: ast.AST) -> Iterator[str]:
    """Yield the strings, with X for what an f-string puts in."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
             for part in node.values}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
            )
        elif isinstance(node, ast.Constant) and id(node) not in parts:
            yield str(node.value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("costopt daemon --listen none &", ""),
        ("costopt daemon mode recommend  # then", ""),
        ("A=1 costopt plan job.yaml --top 3 2> log", ""),
        ("docker exec costopt costopt schema job", ""),
        ("costopt plan job.yaml --top three", "three"),
        ("costopt plan job.yaml --tops 3", "--tops"),
        ("costopt schema jobs", "jobs"),
        ("costopt plan", "is missing"),
        ("costopt plna job.yaml", "plna"),
        ("costopt daemon mode off", "off"),
        ("costopt daemon mode observe enforce", "unexpected"),
    ],
)
def test_a_wrong_command_is_found(text: str, fault: str) -> None:
    found = list(check_code(text, whole=True))
    assert len(found) == bool(fault)
    assert all(fault in each for each in found)


def test_a_command_in_a_sentence_is_found() -> None:
    assert list(check_prose("costopt reconcile lists them; costopt has no opinion")) == []
    assert list(check_prose("costopt reconcile --aply gives them back")) != []
    assert list(check_prose("see costopt bill.")) != []
