"""The generated sections of pages: python -m tests.support.terraform.readme writes them."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import hcl2

from costopt.catalog.csv_table import Row, read_table
from tests.support.terraform.workspace import SOURCE

MODULES = ("modules/aws", "modules/aws/modules/events", "modules/gcp")
COSTS = SOURCE.parent / "docs" / "daemon-costs.md"
PAGES = (COSTS, *(SOURCE / module / "README.md" for module in MODULES))
PLACES = {"aws": "AWS, us-east-1", "gcp": "Google Cloud, us-central1"}
BEGIN = "<!-- generated -->"
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


def generated(page: Path) -> str:
    """What the section of a page has to say."""
    lines = _upkeep() if page == COSTS else _inputs_and_outputs(page.parent)
    return "\n".join([BEGIN, "", *lines, "", END])


def rewritten(page: Path) -> str:
    """The page with its generated section as it should be."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + generated(page) + after


def _inputs_and_outputs(module: Path) -> list[str]:
    lines = ["| input | meaning | default |", "|---|---|---|"]
    for name, body in blocks(module, "variable").items():
        default = f"`{_shown(body['default'])}`" if "default" in body else "required"
        lines.append(f"| `{name}` | {_text(body['description'])} | {default} |")
    lines += ["", "| output | meaning |", "|---|---|"]
    for name, body in blocks(module, "output").items():
        lines.append(f"| `{name}` | {_text(body['description'])} |")
    return lines


def _upkeep() -> list[str]:
    """What the catalogue says, by provider: the default setup in all, then what others add."""
    lines: list[str] = []
    for provider, rows in groupby(read_table("upkeep"), lambda row: row["provider"]):
        lines += [*([""] if lines else []), f"| {PLACES[provider]} | $ a month |", "|---|---|"]
        for setup, parts in groupby(rows, lambda row: row["setup"]):
            listed = list(parts)
            if setup == "default":
                lines += [f"| {row['part']} | {_usd_per_month(row):.2f} |" for row in listed]
                lines.append(f"| **in all** | **{sum(map(_usd_per_month, listed)):.2f}** |")
            else:
                what = ", ".join(row["part"] for row in listed)
                lines.append(f"| `{setup}`: {what} | {sum(map(_usd_per_month, listed)):.2f} |")
    return lines


def _usd_per_month(row: Row) -> float:
    return float(row["amount"]) * float(row["usd_per_unit"])


def _text(value: str) -> str:
    return str(json.loads(value)).replace("|", "\\|")


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(rewritten(each), encoding="utf-8")
