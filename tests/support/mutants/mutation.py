"""Mutants: small faults of one line each, and a choice of them that a seed determines."""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.mutants.blocks import product_files

COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATIONS: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
WITHOUT_EFFECT = frozenset(
    ("annotation", "returns", "decorator_list", "bases", "keywords", "pattern", "guard")
)
"""Fields that only type checkers read, and those whose line does not say what reaches them."""
LOGS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})


@dataclass(frozen=True, slots=True)
class Mutant:
    """A part of one line, and what stands there instead; columns count bytes.

    ``key`` names the line by its text and its number among the same lines of its file: it is the
    same in another state of the product, where other lines have changed.
    """

    path: str
    line: int
    begin: int
    end: int
    old: str
    new: str
    key: str

    @property
    def package(self) -> str:
        """Return the package that the file is in, such as costopt.engine."""
        return package_of(self.path)

    def apply(self, root: Path) -> None:
        """Write the fault into the product below ``root``."""
        path = root / self.path
        lines = path.read_bytes().splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.begin] + self.new.encode() + line[self.end :]
        path.write_bytes(b"".join(lines))


def package_of(path: str) -> str:
    """Return the package of a file of the product, such as costopt.engine or costopt_aws."""
    first, second, *_ = path.removesuffix(".py").split("/")
    return second if first == "providers" else f"{first}.{second}"


def draw(root: Path, seed: int, count: int) -> list[Mutant]:
    """Return mutants of different lines of a product: the same ones for the same seed and lines."""
    by_line: dict[str, list[Mutant]] = defaultdict(list)
    for path in product_files(root):
        for mutant in find_mutants(path.relative_to(root).as_posix(), path.read_bytes()):
            by_line[f"{mutant.path} {mutant.line}"].append(mutant)
    chosen = [min(each, key=lambda m: _rank(seed, m)) for each in by_line.values()]
    chosen.sort(key=lambda mutant: _rank(seed, mutant, of_line=True))
    return chosen[:count]


def _rank(seed: int, mutant: Mutant, of_line: bool = False) -> str:
    what = mutant.key.rpartition("\n")[0] if of_line else mutant.key
    return hashlib.sha256(f"{seed}\n{what}".encode()).hexdigest()


def find_mutants(path: str, source: bytes) -> Iterator[Mutant]:
    """Yield each mutant of a file."""
    lines = source.splitlines()
    earlier: Counter[bytes] = Counter()
    numbers = []
    for text in lines:
        numbers.append(earlier[text])
        earlier[text] += 1
    for node in _executed(ast.parse(source)):
        place = node.test if isinstance(node, ast.If | ast.While | ast.IfExp) else node
        new = _replacement(node)
        if new is None or place.lineno != place.end_lineno:
            continue
        text, begin, end = lines[place.lineno - 1], place.col_offset, place.end_col_offset
        assert end is not None
        key = "\n".join(
            (path, text.decode(), str(numbers[place.lineno - 1]), f"{begin} {end} {new}")
        )
        yield Mutant(path, place.lineno, begin, end, text[begin:end].decode(), new, key)


def _executed(node: ast.AST) -> Iterator[ast.stmt | ast.expr]:
    """Yield the statements and expressions below that run and that a test could notice."""
    for name, value in ast.iter_fields(node):
        if name in WITHOUT_EFFECT and not (name == "keywords" and isinstance(node, ast.Call)):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _is_without_effect(child):
                continue
            if isinstance(child, ast.stmt | ast.expr):
                yield child
            yield from _executed(child)


def _is_without_effect(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.JoinedStr():  # where texts have no columns of their own in 3.11
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__")]):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=called, value=ast.Name(id=of)))):
            return called in LOGS and of in ("log", "logger", "logging")
    return False


def _replacement(node: ast.stmt | ast.expr) -> str | None:
    """Return what may stand in the place of a node, or of the test of a condition; or None."""
    changed = copy.deepcopy(node)
    match changed:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            return None if isinstance(test, ast.Constant) else f"not ({ast.unparse(test)})"
        case ast.Return(value=ast.expr() as value):
            return None if isinstance(value, ast.Constant) else "return None"
        case ast.Expr(value=ast.Call()):
            return "pass"
        case ast.UnaryOp(op=ast.Not()):
            return f"({ast.unparse(changed.operand)})"
        case ast.Constant(value=bool() as value):
            return str(not value)
        case ast.Constant(value=int() | float() as value):
            return repr(value + 1)
    return _changed_operation(changed)


def _changed_operation(node: ast.stmt | ast.expr) -> str | None:
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            node.ops = [COMPARISONS[type(operator)]()]
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.BinOp(op=operator) if type(operator) in OPERATIONS:
            node.op = OPERATIONS[type(operator)]()
        case ast.Call(func=ast.Name(id=called)) if called in CALLS:
            node.func = ast.Name(CALLS[called])
        case _:
            return None
    return f"({ast.unparse(node)})"
