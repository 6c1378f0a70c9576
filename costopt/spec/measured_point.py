"""Edits the text of a job file so that it holds a measured speed; all else stays as it is."""

from __future__ import annotations

from typing import Any

import yaml

from costopt.domain.errors import SpecError
from costopt.domain.market import Gpu
from costopt.spec.yaml_document import compose_document, parse_document

UNEDITABLE = "the place of throughput.points in it is not one that can be edited"


def with_measured_speed(
    text: str, path: str, gpu: Gpu, gpus: int, units_per_s: float, note: str
) -> str:
    """Return the text with the speed among ``throughput.points``, in place of one of the same gang.

    ``note`` is a comment beside a new point. Raises SpecError where the text is not YAML, or where
    aliases or the like make an edit change anything else.
    """
    speed = f"{units_per_s:.4g}"
    before = parse_document(text, path).values
    root = compose_document(path, text)
    assert root is not None
    edited = _edited(text, root, gpu, gpus, speed, note)
    after = parse_document(edited, path).values
    points = (after.get("throughput") or {}).get("points") or []
    is_there = any(
        isinstance(each, dict)
        and _is_same_gang(each, gpu, gpus)
        and each.get("units_per_s") == float(speed)
        for each in points
    )
    if _without_points(before) != _without_points(after) or not is_there:
        raise SpecError(
            f"{path} is left as it is: {UNEDITABLE}",
            hint=f"add under throughput.points: {_entry(gpu, gpus, speed)}",
            subject=path,
        )
    return edited


def _edited(text: str, root: yaml.Node, gpu: Gpu, gpus: int, speed: str, note: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    entry = _entry(gpu, gpus, speed)
    noted = f"{entry}    # {note}"
    throughput = _child(root, "throughput")
    if throughput is None:
        block = ("throughput:", "  points:", f"    - {noted}")
        return _added(text, root, block, f"throughput: {{points: [{entry}]}}", newline)
    points = _child(throughput, "points")
    if points is None:
        inner = ("points:", f"  - {noted}")
        return _added(text, throughput, inner, f"points: [{entry}]", newline)
    for point in points.value if isinstance(points, yaml.SequenceNode) else ():
        if _is_same_gang(_plain(point), gpu, gpus):
            value = _child(point, "units_per_s")
            assert value is not None
            return text[: value.start_mark.index] + speed + text[value.end_mark.index :]
    return _added(text, points, (f"- {noted}",), entry, newline)


def _entry(gpu: Gpu, gpus: int, speed: str) -> str:
    return f"{{gpu: {gpu.model}, gpus: {gpus}, units_per_s: {speed}}}"


def _added(text: str, node: yaml.Node, lines: tuple[str, ...], flow: str, newline: str) -> str:
    """The text with another child of ``node``: ``flow`` within brackets, else ``lines``."""
    if _is_flow(node):
        at = node.end_mark.index - 1
        before = text[:at].rstrip()
        comma = ", " if node.value and not before.endswith(",") else ""
        return text[:at] + comma + flow + text[at:]
    indent = " " * node.start_mark.column
    at = text.find("\n", _end(node))
    at = len(text) if at < 0 else at - (newline == "\r\n")
    return text[:at] + "".join(f"{newline}{indent}{line}" for line in lines) + text[at:]


def _is_flow(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def _end(node: yaml.Node) -> int:
    """Where the last value of a node ends; a block's own mark is where the next thing begins."""
    if isinstance(node, yaml.ScalarNode) or _is_flow(node) or not node.value:
        end: int = node.end_mark.index
        return end
    last = node.value[-1]
    return _end(last[1] if isinstance(node, yaml.MappingNode) else last)


def _child(node: yaml.Node, key: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _plain(node: yaml.Node) -> dict[str, Any]:
    """The scalars of a mapping, numbers as such."""
    if not isinstance(node, yaml.MappingNode):
        return {}
    scalars = {k.value: v.value for k, v in node.value if isinstance(v, yaml.ScalarNode)}
    return {key: int(word) if word.isdigit() else word for key, word in scalars.items()}


def _is_same_gang(point: dict[str, Any], gpu: Gpu, gpus: int) -> bool:
    count = point.get("gpus") or point.get("nodes", 1) * point.get("gpus_per_node", 1)
    return gpu.matches_name(str(point.get("gpu", ""))) and count == gpus


def _without_points(values: Any) -> dict[str, Any]:
    throughput = {**(values.get("throughput") or {})}
    throughput.pop("points", None)
    return {**values, "throughput": throughput}
