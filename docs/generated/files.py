"""The page of the files that users write, from the schemas that check them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from costopt.formatting import seconds_text
from costopt.spec import account_schema, cluster_schema, job_schema, policy_schema

HEAD = """\
# Job, policy, account and cluster files

`costopt schema job` prints the schema that checks a file, for editors; `costopt validate FILE…`
reports every problem with its line and field. Unknown fields are errors.

Numbers of any size, dollars among them, may be written `70B`, `150M` or `$60k`. A duration is
`90m`, `72h`, `1d 12h` or a number of seconds. A time is ISO 8601 with its zone, such as
`2026-05-01T08:00:00Z`; a job's start and deadline may be `2026-12-01 09:00 Europe/Berlin`, too, or
the next `Mon 9:00 Europe/Berlin`. Without a zone these two are of this machine's, which `validate`
and `plan` say; `submit` sends the instant, as the daemon may be elsewhere. A job's work may be
`10 epochs`. Sizes are GiB, powers watts or kilowatts, money US dollars.
"""
FILES: tuple[tuple[str, str, Callable[[], dict[str, Any]]], ...] = (
    ("Job file", "What is to be done, and by when. `costopt init` writes one.", job_schema),
    (
        "Policy file",
        "What to minimize, within which limits. Shipped policies are named without a file.",
        policy_schema,
    ),
    ("Account file", "Quotas, tenants, guards and the providers to rent from.", account_schema),
    (
        "Cluster file",
        "Owned or reserved nodes that `costopt fleet` replays jobs on.",
        cluster_schema,
    ),
)
Schema = Mapping[str, Any]
_BY_EXAMPLE = {"auto": "`auto` or duration", "90m": "duration", "72h": "time or duration"}
"""Types of text with a pattern, by an example that the schema gives for each."""


def files_page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *(line for each in FILES for line in _file(*each))])


def _file(title: str, summary: str, schema: Callable[[], dict[str, Any]]) -> Iterator[str]:
    written = schema()
    root = _with_enums(written, written.get("$defs", {}))
    yield from (f"## {title}", "", summary, "")
    yield from _table(root)
    for path, section in _sections(root):
        yield from (f"### `{path}` of the {title.lower()}", "")
        yield from (_text(section.get("description", "")), "")
        yield from _table(section)


def _with_enums(part: Any, definitions: Schema) -> Any:
    """Return the schema with each reference to an enumeration replaced by its values."""
    if isinstance(part, list):
        return [_with_enums(each, definitions) for each in part]
    if not isinstance(part, Mapping):
        return part
    named = definitions.get(str(part.get("$ref", "")).rpartition("/")[2], {})
    if "enum" in named:
        return {
            **{key: value for key, value in part.items() if key != "$ref"},
            "enum": named["enum"],
        }
    return {key: _with_enums(value, definitions) for key, value in part.items()}


def _sections(root: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the sections with the path of the field that holds them, each section once."""
    definitions = root.get("$defs", {})
    queue: list[tuple[str, Schema]] = [("", root)]
    seen: set[str] = set()
    while queue:
        prefix, section = queue.pop(0)
        for name, field in section.get("properties", {}).items():
            reference, suffix = _reference(field)
            if reference in seen or "properties" not in definitions.get(reference, {}):
                continue
            seen.add(reference)
            path = f"{prefix}{name}{suffix}"
            yield path, definitions[reference]
            queue.append((f"{path}.", definitions[reference]))


def _reference(field: Schema) -> tuple[str, str]:
    """Return the name of the definition that a field refers to, and how it is repeated."""
    for each in (field, *field.get("anyOf", ())):
        if "$ref" in each:
            return str(each["$ref"]).rpartition("/")[2], ""
        items = each.get("items")
        if isinstance(items, Mapping) and "$ref" in items:
            return str(items["$ref"]).rpartition("/")[2], "[]"
        values = each.get("additionalProperties")
        if isinstance(values, Mapping) and "$ref" in values:
            return str(values["$ref"]).rpartition("/")[2], ".NAME"
    return "", ""


def _table(section: Schema) -> Iterator[str]:
    required = section.get("required", ())
    yield from ("| field | type | default | meaning |", "|---|---|---|---|")
    for name, field in section.get("properties", {}).items():
        default = "**required**" if name in required else _default(field)
        yield f"| `{name}` | {_type(field)} | {default} | {_text(field.get('description', ''))} |"
    yield ""


def _text(text: str) -> str:
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


def _default(field: Schema) -> str:
    value = field.get("default")
    if value is None or value in ([], {}):
        return ""
    if isinstance(value, Mapping):
        return "see below"
    if _type(field) == "duration" and isinstance(value, int | float):
        return f"`{seconds_text(value)}`"
    text = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else str(value)
    return f"`{text}`"


def _type(field: Schema) -> str:
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    for example, kind in _BY_EXAMPLE.items():
        if example in field.get("examples", ()):
            return kind
    if "anyOf" in field:
        kinds = (_type(each) for each in field["anyOf"] if each.get("type") != "null")
        return " or ".join(dict.fromkeys(kinds))
    reference, suffix = _reference(field)
    if reference:
        return {"[]": "list of sections", ".NAME": "sections by name"}.get(suffix, "section")
    return _plain_type(field)


def _plain_type(field: Schema) -> str:
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    kinds = field.get("type", "value")
    names = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind != "null"]
    words = {
        "string": "text", "integer": "whole number", "boolean": "true or false",
        "object": "mapping", "array": "list",
    }  # fmt: skip
    return " or ".join(words.get(name, name) for name in names) + _range(field)


def _range(field: Schema) -> str:
    """Return the lower bound where it says more than that the number is sane."""
    if "exclusiveMinimum" in field:
        return f" > {field['exclusiveMinimum']:g}"
    low, high = field.get("minimum"), field.get("maximum")
    if high is not None and high <= 1:
        return " from 0 to 1"
    return "" if low is None or low < 0 or "string" in field.get("type", ()) else f" ≥ {low:g}"
