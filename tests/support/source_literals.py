"""Names that stand in the product's source as literals: what no table of the code lists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def names(pattern: str) -> list[str]:
    """Every text in the source, docstrings apart, that the pattern matches as a whole."""
    shape = re.compile(pattern)
    return sorted({text for text in _texts(_nodes()) if shape.fullmatch(text)})


def arguments(function: str, position: int | None = None, keyword: str = "") -> list[str]:
    """Every literal in this place of the calls of a function, method or class of this name."""
    found: set[str] = set()
    for call in _nodes():
        if isinstance(call, ast.Call) and _name(call.func) == function:
            given = [] if position is None else call.args[position : position + 1]
            found.update(_texts(given))
            found.update(_texts(each.value for each in call.keywords if each.arg == keyword))
    return sorted(found)


def codes(*folders: str) -> list[str]:
    """Every code of (code, reason) pairs that these folders return, yield or assign."""
    found: set[str] = set()
    for node in _nodes(folders):
        value = node.value if isinstance(node, (ast.Assign, ast.Return, ast.Yield)) else None
        value = value.body if isinstance(value, ast.IfExp) else value
        if not isinstance(value, ast.Tuple) or not value.elts:
            continue
        if not isinstance(node, ast.Assign) or _is_sentence(value.elts[-1]):
            found.update(_texts(value.elts[:1]))
    return sorted(code for code in found if re.fullmatch("[a-z_]+", code))


@cache
def _nodes(folders: tuple[str, ...] = ("costopt", "providers")) -> tuple[ast.AST, ...]:
    """Calls, texts, assignments and results in the modules of these folders; no docstrings."""
    found: list[ast.AST] = []
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                node.body = [line for line in node.body if not _is_docstring(line)]
            elif isinstance(node, (ast.Assign, ast.Call, ast.Constant, ast.Return, ast.Yield)):
                found.append(node)
    return tuple(found)


def _texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _is_sentence(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or any(" " in text for text in _texts([node]))


def _is_docstring(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


def _name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
