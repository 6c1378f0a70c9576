"""Bytecode that notes which blocks of the product ran: one byte per block, set to 1.

A block is what runs as a whole: the body of a function, an arm of a condition, the body of a loop,
what follows either. Its compiled file replaces Python's cached one in a copy of the tree; sources,
line numbers and tracebacks stay the same, and every process that imports the copy takes part.
coverage.py traces each line that runs, which takes the suite two and a half times as long.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import marshal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PRODUCT = ("costopt", "providers")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
NESTED = (*LOOPS, ast.If, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
UNCHECKED_HASH = (1).to_bytes(4, "little") + bytes(8)
"""The head of a compiled file that Python never compares with its source."""
RECORD = """
def _map_reached():
    import mmap, os
    name = os.environ.get("COSTOPT_MUTANTS_TEST")
    if not name:
        return bytearray({size})
    try:
        shared = os.open(os.path.join({folder!r}, name), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:  # another user, or a container
        return bytearray({size})
    try:
        os.ftruncate(shared, {size})
        return mmap.mmap(shared, {size})
    finally:
        os.close(shared)

__reached__ = _map_reached()
"""
"""In pytest's processes a record of their own, which they empty after each test. What a test starts
writes into the file of that test: nothing is lost where the process is killed."""
IMPORTED = ""
"""In place of a test: what is reached before the first one, and between two."""


def file_name(test: str) -> str:
    """Return the name of the file that the processes of a test write into."""
    return hashlib.sha256(test.encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Block:
    """Statements that run as a whole, by their lines; where nothing stands, an empty arm."""

    path: str
    lines: tuple[int, ...]
    is_import: bool = False
    is_branch: bool = False


@dataclass(slots=True)
class Blocks:
    """The blocks of a product, in the order of their numbers."""

    found: list[Block] = field(default_factory=list)

    def instrument(self, path: str, source: bytes) -> ast.Module:
        """Return the tree of a file that marks its blocks; add them to those found."""
        tree = ast.parse(source)
        start = _statements_begin(tree.body)
        lines = tuple(sorted(_import_lines(tree.body[start:])))
        record = ast.parse("from costopt import __reached__").body
        tree.body[start:start] = [*record, self._mark(Block(path, lines, is_import=True))]
        self._visit(path, tree)
        return ast.fix_missing_locations(tree)

    def _visit(self, path: str, tree: ast.AST) -> None:
        """Mark the bodies of all functions below, but for those that numba compiles."""
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, FUNCTIONS):
                if any("jit" in ast.unparse(each) for each in node.decorator_list):
                    continue
                start = _statements_begin(node.body)
                if not _is_stub(node.body[start:]):
                    node.body[start:] = self._marked(path, node.body[start:])
            self._visit(path, node)

    def _marked(
        self, path: str, body: Sequence[ast.stmt], is_branch: bool = False
    ) -> list[ast.stmt]:
        """Return the statements with a mark before each group that runs as a whole."""
        marked: list[ast.stmt] = []
        group: list[ast.stmt] = []
        first = True
        for statement in body:
            group.append(statement)
            if isinstance(statement, NESTED):
                marked += [self._mark(_block(path, group, is_branch and first)), *group]
                self._mark_arms(path, statement)
                group, first = [], False
        if group or not body:
            marked += [self._mark(_block(path, group, is_branch and first)), *group]
        return marked

    def _mark_arms(self, path: str, statement: ast.stmt) -> None:
        branches = isinstance(statement, (ast.If, *LOOPS)) and not _is_endless(statement)
        for name in ("body", "orelse", "finalbody"):
            arm = getattr(statement, name, None)
            if arm or (name == "orelse" and branches):
                setattr(statement, name, self._marked(path, arm or [], branches))
        for handler in getattr(statement, "handlers", ()):
            handler.body = self._marked(path, handler.body)
        if isinstance(statement, ast.Match):
            for case in statement.cases:
                case.body = self._marked(path, case.body, is_branch=True)

    def _mark(self, block: Block) -> ast.stmt:
        """Return the statement that notes a block; it takes the place of the block's first line."""
        self.found.append(block)
        (mark,) = ast.parse(f"__reached__[{len(self.found) - 1}] = 1").body
        for node in ast.walk(mark):
            if isinstance(node, ast.stmt | ast.expr):
                node.lineno = node.end_lineno = block.lines[0] if block.lines else 1
        return mark


def _is_endless(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.While) and isinstance(statement.test, ast.Constant)


def _block(path: str, statements: Sequence[ast.stmt], is_branch: bool) -> Block:
    return Block(path, tuple(each.lineno for each in statements), is_branch=is_branch)


def _statements_begin(body: Sequence[ast.stmt]) -> int:
    """Return where a body begins behind its docstring and imports from the future."""
    for number, statement in enumerate(body):
        match statement:
            case ast.Expr(value=ast.Constant(value=str())) | ast.ImportFrom(module="__future__"):
                continue
        return number
    return len(body)


def _is_stub(body: Sequence[ast.stmt]) -> bool:
    """Whether a function is declared only: nothing but its docstring, or an ellipsis."""
    return all(isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) for each in body)


def _import_lines(body: Sequence[ast.stmt]) -> Iterator[int]:
    """Yield the lines of statements that run when a module is imported, its classes' included."""
    for statement in body:
        if not _is_stub([statement]):
            yield statement.lineno
        for name in ("body", "orelse", "finalbody", "handlers"):
            if not isinstance(statement, FUNCTIONS):
                yield from _import_lines(getattr(statement, name, ()))


def product_files(root: Path) -> Iterator[Path]:
    """Yield the Python files of the product below a checkout."""
    for folder in PRODUCT:
        yield from sorted((root / folder).rglob("*.py"))


def compile_product(root: Path, folder: Path) -> list[Block]:
    """Write the compiled files of a product that note blocks; ``folder`` takes those of a test."""
    blocks = Blocks()
    trees: Mapping[Path, ast.Module] = {
        path: blocks.instrument(path.relative_to(root).as_posix(), path.read_bytes())
        for path in product_files(root)
    }
    record = RECORD.format(size=len(blocks.found), folder=str(folder))
    package = root / "costopt" / "__init__.py"
    body = trees[package].body
    place = next(n for n, each in enumerate(body) if "__reached__" in ast.unparse(each))
    body[place : place + 1] = ast.parse(record).body
    for path, tree in trees.items():
        code = compile(tree, str(path), "exec", dont_inherit=True)
        compiled = Path(importlib.util.cache_from_source(path))
        compiled.parent.mkdir(exist_ok=True)
        compiled.write_bytes(importlib.util.MAGIC_NUMBER + UNCHECKED_HASH + marshal.dumps(code))
    return blocks.found
