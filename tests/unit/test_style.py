"""The house style: names of constants and classes, the length of files, and idiomatic prose.

A phrase that is banned is one that cannot stand in a good sentence: single words in their common
sense pass. Code in backticks and fenced blocks, and strings without a space, are identifiers.
"""

from __future__ import annotations

import ast
import gc
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.worker_group("style")
"""One worker parses the tree, once."""
ROOT = Path(__file__).parents[2]
PRODUCT = ("costopt", "providers")
PROSE = (*PRODUCT, "benchmarks", "deploy", "docs", "examples", "policies", "terraform")
MAX_LINES = 450
BANNED_NAME = re.compile(
    r"_*(?:(?:MOST|LEAST|LONGEST|SHORTEST|FEWEST|LARGEST|OLDEST)_"
    r"|(?:most|least)_(?!common)|told|anew|whence)"
)

BANNED_WORDS = frozenset(
    [
        *("anew", "bench", "dear", "dearer", "dearest", "doomed", "firm", "heed", "hello"),
        *("leftover", "leftovers", "letter", "letters", "mend", "mended", "nobody", "outlook"),
        *("reckon", "reckoned", "sights", "silence", "situation", "sooner", "story", "strike"),
        *("strikes", "struck", "tariff", "told", "trouble", "troubles", "unbeaten", "voice"),
        *("whence", "whoever", "wish", "wishes"),
    ]
)
"""Parts of names for which the vocabulary has another word."""
ALLOWED_NAMES = {
    "costopt/catalog/traits.py": {"LETTER", "letter"},  # of a zone
    "providers/costopt_kubernetes/machines.py": {"letters"},  # of a family
    "providers/costopt_kubernetes/quantities.py": {"letter"},  # of a unit
    "providers/costopt_slurm/options.py": {"firm"},  # users type it
}
NOT_YET = frozenset(
    f"costopt/{package}"
    for package in (
        "api",
        "backtesting",
        "cli",
        "controller",
        "daemon",
        "engine",
        "ledger",
        "market",
        "optimize",
        "planning",
        "render",
        "strategies",
    )
)
"""Packages whose own names are yet to be read for banned words."""

MIRRORED = frozenset(
    {
        "AccountQuotas",
        "Billing",
        "Bootstrap",
        "Clients",
        "Doctor",
        "ImageResolver",
        "InstanceInventory",
        "InstanceTerminator",
        "MachineImage",
        "NodeOptions",
        "NodeSetup",
        "OrphanedResources",
        "Permissions",
        "Regions",
        "Timeouts",
    }
)
"""Classes of the same role, one in each provider."""
DUPLICATES: frozenset[str] = frozenset()
"""Classes that exist twice and are yet to become one."""

BE = r"(?:is|are|was|were|be|been|being)"
PHRASES = {
    "told": rf"\b(?:{BE}|last|and|or|as) (?:\w+ )?told\b(?! apart)",
    "has told": r"\b(?:they|it|people|person|nobody|providers?|trainers?|has|have) told\b",
    "tell of": r"\b(?:told|tells?) (?:of|nothing|otherwise|its|it|no|as)\b(?! (?:\w+ )?apart)",
    "tells": r"\b(?:what|it|that|provider|daemon|ledger|cloud|row|AWS|Google) tells\b",
    "anew": r"\banew\b",
    "reckon": r"\breckon(?:s|ed|ing)?\b",
    "heed": r"\bheed(?:s|ed|ing)?\b",
    "mend": r"\bmend(?:s|ed|ing)?\b",
    "whoever": r"\bwhoever\b",
    "nobody": r"\bnobody (?!user|group|account)\w",
    "is no": r"(?<!\bthere )\b(?:is|are|was|were) no "
    r"(?!longer|more|less|fewer|different|doubt|exception|good|\w+er than)\w",
    "to be had": r"\b(?:to|can|could|may|might|cannot|not) be had\b",
    "give back": r"\b(?:giv(?:e|es|en|ing)|gave) (?:it |them )?back\b",
    "hand in": r"\bhand(?:s|ed|ing)? (?:it |them )?in\b(?! hand)",
    "take up": r"\b(?:tak(?:e|es|en|ing)|took) (?:up|in) (?:what|from|news)\b",
    "let go": r"\blet(?:s|ting)? (?:go of|those go|(?:it|them) go)\b",
    "come to": r"\bwhat (?:\w+ ){1,3}(?:comes?|came) to\b|\bc[ao]me to pass\b|\bcame to be\b",
    "keep to": r"\b(?:keeps?|kept) to (?:it|them|its|their|a|an|the|these|what|that)\b",
    "whence": r"\bwhence\b",
    "strike": r"\b(?:its|the|a|that|has|have|not|they) (?:strikes?|struck)\b(?! price)",
    "wanted": rf"\b(?:{BE}|still) (?:not )?(?:wanted|wished)\b|\bwants? (?:of|nothing|anything)\b",
    "in trouble": r"\bin trouble\b|\b(?:a|each|every) trouble\b",
    "silent": r"\b(?:falls?|fallen|fell) silent\b|\bsilent (?:for|since|when)\b|\bsilent ones?\b",
    "look": r"\b(?:each look|(?:two|between|before) looks)\b",
    "stand": r"\b(?:how|where) (?:\w+ ){1,3}stands?\b|\bthat stands\b",
    "doomed": r"\bdoomed\b",
    "dear": r"\bdear(?:er|est)\b",
    "firm": r"\bfirm (?:pools?|capacity|offers?|nodes?)\b",
    "what is left": r"\bwhat is left\b",
    "by itself": r"\bby (?:itself|themselves)\b",
}
"""Rule 11 of the vocabulary, as phrases."""
BANNED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in PHRASES.items()}
LITERAL_OR_COMMENT = re.compile(
    r"""\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|(?P<comment>\#[^\n]*)""",
    re.DOTALL,
)
CODE = r"```.*?```|\{#.*?#\}|<(?:style|script).*?</(?:style|script)>"


def _tracked(folders: tuple[str, ...], *suffixes: str) -> Iterator[Path]:
    for folder in folders:
        yield from (p for p in sorted((ROOT / folder).rglob("*")) if p.suffix in suffixes)


@cache
def _package(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2] if parts[0] in PRODUCT and len(parts) > 2 else parts[:1])


@cache
def _trees() -> dict[Path, ast.Module]:
    """Return the trees of all of Python that is checked here."""
    gc.disable()  # which would look through all trees, again and again, as they grow
    try:
        paths = _tracked((*PROSE, "tests"), ".py")
        return {path: ast.parse(path.read_text("utf-8")) for path in paths}
    finally:
        gc.enable()


def _texts(path: Path) -> Iterator[str]:
    """Strings, docstrings and comments of Python; the prose of other files."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        yield re.sub(
            r"```.*?```|\{#.*?#\}|<(?:style|script).*?</(?:style|script)>", "", text, flags=re.S
        )
        return
    yield from _strings(_trees()[path])
    yield from _comments(text)


def _comments(text: str) -> Iterator[str]:
    """The comments of Python, those on lines that follow one another as one."""
    blocks, end = [""], -1
    for found in LITERAL_OR_COMMENT.finditer(text):
        if found["comment"] is not None:
            if text[end : found.start()].strip(" ") != "\n":
                blocks.append("")
            blocks[-1] += " " + found["comment"].lstrip("# ")
            end = found.end()
    yield from blocks


def _strings(tree: ast.AST) -> Iterator[str]:
    """The strings of a tree, those with braces with each expression as {}."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values
            )
            for value in node.values:
                yield from _strings(value) if isinstance(value, ast.FormattedValue) else ()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        else:
            yield from _strings(node)


def _prose(text: str) -> str:
    """Without code in backticks, on one line."""
    return re.sub(r"\s+", " ", re.sub(r"``[^`]*``|`[^`]*`", "`", text))


def _banned(text: str) -> list[str]:
    if " " not in text.strip():
        return []
    prose = _prose(text)
    return [f"{name}: {m[0]}" for name, each in BANNED.items() for m in each.finditer(prose)]


def _found() -> dict[str, list[str]]:
    """Banned phrases with their files, by package."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in (
        *_tracked(PROSE, ".py", ".md", ".j2"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
    ):
        for text in _texts(path):
            hits = [f"{path.relative_to(ROOT)}: {hit}" for hit in _banned(text)]
            if hits:
                found[_package(path)] += hits
    return found


def _names(node: ast.AST) -> Iterator[str]:
    """The identifiers that a node defines or uses."""
    for attribute in ("id", "name", "attr", "arg"):
        if isinstance(name := getattr(node, attribute, None), str):
            yield name


def test_no_name_begins_with_a_banned_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {name}"
        for path in _tracked((*PRODUCT, "tests"), ".py")
        if BANNED_NAME.search(path.read_text("utf-8"))
        for node in ast.walk(_trees()[path])
        for name in _names(node)
        if BANNED_NAME.match(name)
    ]
    assert found == []


def _defined(node: ast.AST) -> Iterator[str]:
    """The identifiers that a node defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.Attribute(attr=name, ctx=ast.Store()) | ast.alias(asname=str(name)):
            yield name


def test_no_name_holds_a_banned_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {name}"
        for path in _tracked((*PRODUCT, "tests"), ".py")
        if _package(path) not in NOT_YET
        for node in ast.walk(_trees()[path])
        for name in _defined(node)
        if BANNED_WORDS & {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
        and name not in ALLOWED_NAMES.get(str(path.relative_to(ROOT)), ())
    ]
    assert found == []


def test_names_of_tests_read_as_prose() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {node.name}: {hit}"
        for path in _tracked(("tests",), ".py")
        for node in ast.walk(_trees()[path])
        if isinstance(node, ast.FunctionDef)
        for hit in _banned(node.name.replace("_", " ") + " .")
    ]
    assert found == []


def test_no_class_name_exists_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in _tracked(PRODUCT, ".py"):
        for node in _trees()[path].body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(_package(path))
    twice = {name for name, found in places.items() if len(found) > 1}
    one_per_cloud = {
        name
        for name in twice & MIRRORED
        if Counter(places[name]) <= Counter(["providers/costopt_aws", "providers/costopt_gcp"])
    }
    assert twice - one_per_cloud == DUPLICATES


def test_no_file_is_too_long() -> None:
    lines = {p: len(p.read_text("utf-8").splitlines()) for p in _tracked(PRODUCT, ".py")}
    assert {str(p.relative_to(ROOT)): n for p, n in lines.items() if n > MAX_LINES} == {}


@pytest.mark.parametrize(
    "text",
    [
        "Two peers are told apart by their keys; there is no third one.",
        "The file is no longer there, and the retry is no more expensive.",
        "A silent failure takes up space until the strike price is reached.",
        "Call `nobody told it` by ``anew``.",
        "is_no_file",
    ],
)
def test_good_sentences_pass(text: str) -> None:
    assert _banned(text) == []


@pytest.mark.parametrize(
    "text",
    ["the body is no JSON object", "what the\n    node is told", "how many are to be had"],
)
def test_banned_phrases_are_found(text: str) -> None:
    assert len(_banned(text)) == 1


def test_prose_is_idiomatic() -> None:
    found = _found()
    assert not any(found.values()), "\n".join(hit for hits in found.values() for hit in hits)
