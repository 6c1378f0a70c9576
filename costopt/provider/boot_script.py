"""The one text that a node boots with: what all clouds share, its own cloud's part, the call."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict

from costopt.domain.runtime import Payload
from costopt.provider import boot


def render_boot_script(
    payload: Payload,
    cloud: type[boot.BootPlatform],
    store: Mapping[str, str],
    *,
    root: str,
    pythons: tuple[str, ...],
    more: Mapping[str, object] | None = None,
    entry: str = "boot",
) -> str:
    """The script for nodes of the payload's job: the same text for the same arguments, no secrets.

    The module of ``cloud`` goes with it; like ``boot`` it imports nothing but the standard
    library and ``boot`` itself. ``cloud`` gets a mapping with the keys job, store, wheel,
    bundle, requirements, root, pythons and those of ``more``. ``entry`` is the function that is
    called with both.
    """
    config = {
        "job": payload.job,
        "store": store,
        "wheel": asdict(payload.wheel),
        "bundle": asdict(payload.bundle),
        "requirements": payload.requirements,
        "root": root,
        "pythons": pythons,
        **(more or {}),
    }
    call = f"{entry}({cloud.__name__}, json.loads({json.dumps(config, sort_keys=True)!r}))\n"
    parts = (boot, sys.modules[cloud.__module__])
    texts = "\n".join(_standing_alone(inspect.getsource(part)) for part in parts)
    return f"#!/usr/bin/env python3\nfrom __future__ import annotations\n{texts}\n{call}"


def _standing_alone(source: str) -> str:
    """Without docstrings, for user data are short, and without imports of what stands before it."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        for statement in _left_out(node):
            end = statement.end_lineno or statement.lineno
            lines[statement.lineno - 1 : end] = [""] * (end - statement.lineno + 1)
    return "".join(lines)


def _left_out(node: ast.AST) -> list[ast.stmt]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        alone = len(node.body) == 1
        return [] if alone or ast.get_docstring(node) is None else node.body[:1]
    if not isinstance(node, ast.Module):
        return []
    imports = (each for each in node.body if isinstance(each, ast.ImportFrom))
    ours = (each for each in imports if (each.module or "").startswith(("__future__", "costopt.")))
    return [node.body[0], *ours]
