"""Pages of the stored notebooks, with their outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def notebook_page(path: Path) -> tuple[str, dict[str, str]]:
    """Return a notebook as Markdown, and its pictures by file name."""
    book, name = json.loads(path.read_text("utf-8")), path.stem
    pictures: dict[str, str] = {}
    parts: list[str] = []
    for cell in book["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(cell["source"])
            continue
        parts.append(f"```python\n{cell['source']}\n```")
        parts += _outputs(cell["outputs"], name, pictures)
    parts.append(
        f"The notebook is `examples/notebooks/{name}.ipynb`; the tests execute it with each change."
    )
    return "\n\n".join(parts) + "\n", pictures


def _outputs(
    outputs: Sequence[Mapping[str, Any]], name: str, pictures: dict[str, str]
) -> Iterator[str]:
    for output in outputs:
        data = output.get("data", {})
        if "image/svg+xml" in data:
            file = f"{name}-{len(pictures) + 1}.svg"
            pictures[file] = data["image/svg+xml"]
            alt = re.search(r"<title>(.*?)</title>", pictures[file])
            yield f"![{alt[1] if alt else name}]({file})"
        elif "text/html" in data:
            yield re.sub(r"\n\s*\n", "\n", data["text/html"])
        else:
            text = output.get("text") or data.get("text/plain", "")
            yield f"```text\n{text.rstrip()}\n```"
