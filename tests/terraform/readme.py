"""The generated sections of the modules' READMEs: python -m tests.terraform.readme writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hcl2

from tests.terraform.workspace import SOURCE

MODULES = ("modules/aws", "modules/aws/modules/events", "modules/gcp")
BEGIN = "<!-- generated: inputs and outputs -->"
END = "<!-- end of generated -->"


def blocks(module: Path, kind: str) -> dict[str, dict[str, Any]]:
    """The blocks of one kind in a module's files, by their name."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(module.glob("*.tf")):
        with path.open(encoding="utf-8") as file:
            for block in hcl2.load(file).get(kind, ()):
                for name, body in block.items():
                    found[name.strip('"')] = body
    return found


def generated(module: Path) -> str:
    """What the section of a module's README has to say."""
    lines = [BEGIN, "", "| input | meaning | default |", "|---|---|---|"]
    for name, body in blocks(module, "variable").items():
        default = f"`{_shown(body['default'])}`" if "default" in body else "required"
        lines.append(f"| `{name}` | {_text(body['description'])} | {default} |")
    lines += ["", "| output | meaning |", "|---|---|"]
    for name, body in blocks(module, "output").items():
        lines.append(f"| `{name}` | {_text(body['description'])} |")
    return "\n".join([*lines, "", END])


def rewritten(module: Path) -> str:
    """The README with its generated section as it should be."""
    text = (module / "README.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + generated(module) + after


def _text(value: str) -> str:
    return str(json.loads(value)).replace("|", "\\|")


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)


if __name__ == "__main__":
    for each in MODULES:
        place = SOURCE / each
        (place / "README.md").write_text(rewritten(place), encoding="utf-8")
