"""The pages of the site that are made when it is built."""

from __future__ import annotations

from pathlib import Path

from docs.generated.commands import commands_page
from docs.generated.events import events_page
from docs.generated.files import files_page
from docs.generated.metrics import metrics_page
from docs.generated.notebooks import notebook_page

NOTEBOOKS = Path(__file__).resolve().parents[2] / "examples" / "notebooks"


def generated_pages() -> dict[str, str]:
    """Return the text of each page, and of pictures in it, by its path in the site."""
    pages = {
        "cli.md": commands_page(),
        "events.md": events_page(),
        "files.md": files_page(),
        "metrics.md": metrics_page(),
    }
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        page, pictures = notebook_page(path)
        pages[f"notebooks/{path.stem}.md"] = page
        pages |= {f"notebooks/{name}": picture for name, picture in pictures.items()}
    return pages
