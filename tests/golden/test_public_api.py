"""The public Python API: its names, the signatures of its functions, the fields of its classes."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from typing import Any

import costopt
from costopt.domain.errors import CostoptError
from tests.support.golden import check


def test_python_api() -> None:
    names = [name for name in costopt.__all__ if name != "__version__"]
    check("python_api", {name: _form(getattr(costopt, name)) for name in names})


def _form(value: Any) -> Any:
    if not isinstance(value, type):
        return str(inspect.signature(value))
    if issubclass(value, CostoptError):
        return f"{value.__mro__[1].__name__}, exits with {value.exit_code}"
    members = {
        name: _member(member)
        for name, member in vars(value).items()
        if not name.startswith("_") or name in ("__init__", "_repr_html_")
        if name != "__init__" or not (is_dataclass(value) or getattr(value, "_is_protocol", False))
    }
    if is_dataclass(value):
        members |= {each.name: str(each.type) for each in fields(value)}
    return members


def _member(member: Any) -> str:
    function = getattr(member, "fget", None) or getattr(member, "__func__", member)
    if not inspect.isfunction(function):
        return "attribute"
    kind = "property" if isinstance(member, property) else ""
    return f"{kind}{inspect.signature(function)}"
