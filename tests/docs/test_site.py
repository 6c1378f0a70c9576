"""The README is short, quotes what benchmarks found, and the site's pages are all reachable."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import costopt
from benchmarks.results import FILE, insert_figures, pages, read_results, save_figures
from costopt.daemon.watch.metrics import METRICS
from costopt.domain.events import EVENT_TYPES
from costopt.spec import job_schema, policy_schema
from docs.generated.api import ENTRY, expand_entries
from docs.generated.commands import commands
from docs.generated.pages import generated_pages
from tests.docs.test_readme import BLOCK

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
SITE: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
MAX_LINES = 100
MAX_COLUMNS = 100


def _nav(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from _nav(value) if isinstance(value, list) else [value]


def test_every_page_is_in_the_navigation_once() -> None:
    docs = ROOT / "docs"
    written = {path.relative_to(docs).as_posix() for path in docs.glob("**/*.md")}
    generated = {name for name in generated_pages() if name.endswith(".md")}
    assert not written & generated
    assert sorted(_nav(SITE["nav"])) == sorted(written | generated)


def test_links_to_the_site_lead_to_its_pages() -> None:
    pattern = rf"{re.escape(SITE['extra']['site'])}/([\w/]+)\.html"
    named = {name for page in pages() for name in re.findall(pattern, page.read_text("utf-8"))}
    assert "cli" in named
    assert {f"{name}.md" for name in named} <= set(_nav(SITE["nav"]))


def test_generated_pages_name_everything() -> None:
    made = generated_pages()
    assert [path for path, _ in commands() if f"\n## {path}\n" not in made["cli.md"]] == []
    assert [kind for kind in EVENT_TYPES if f"\n## {kind.kind}\n" not in made["events.md"]] == []
    assert [
        spec.name for spec in METRICS if f"`{spec.exposed_names[0]}`" not in made["metrics.md"]
    ] == []
    fields = {name for schema in (job_schema, policy_schema) for name in schema()["properties"]}
    assert [name for name in fields if f"\n| `{name}` |" not in made["files.md"]] == []
    assert "```python" in made["notebooks/plan_a_job.md"]
    assert made["notebooks/plan_a_job-1.svg"].startswith("<svg")


def test_the_readme_is_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md", "docs/plan.md"])
def test_output_fits_a_page(page: str) -> None:
    blocks = BLOCK.finditer((ROOT / page).read_text("utf-8"))
    lines = [line for block in blocks for line in block["text"].splitlines()]
    assert [line for line in lines if len(line) > MAX_COLUMNS and not line.startswith("$")] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_to_the_repository_lead_to_its_files(page: Path) -> None:
    text = page.read_text("utf-8")
    base = SITE["extra"]["repository"].removeprefix("https://github.com/")
    pattern = rf"(?:github|raw\.githubusercontent)\.com/{base}/(?:(?:blob|tree)/)?main/([^\s)#]+)"
    assert [path for path in re.findall(pattern, text) if not (ROOT / path).exists()] == []


def test_the_readme_has_no_relative_link() -> None:
    """A package index shows it without the repository around it."""
    text = re.sub(r"^```.*?^```$", "", README.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)\s]+)|^\[[^\]]+\]: (\S+)", text, flags=re.MULTILINE)
    assert [a or b for a, b in targets if not (a or b).startswith("https://")] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_quoted_figures_are_those_of_the_last_benchmarks(page: Path) -> None:
    """Else: python -m benchmarks.results"""
    text = page.read_text("utf-8")
    assert insert_figures(text, read_results()) == text


def test_some_pages_quote_figures() -> None:
    assert FILE.exists()
    marked = [page.name for page in pages() if "<!-- bench: " in page.read_text("utf-8")]
    assert {"README.md", "benchmarks.md", "notes.md"} <= set(marked)


def test_figures_are_replaced_by_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    save_figures("a", [("speed", 1.5, "s")], path)
    save_figures("b", [("size", 2.0, "MB")], path)
    save_figures("a", [("speed", 2.5, "s")], path)
    save_figures("b", [], path)
    results = read_results(path)
    assert {name: own["figures"] for name, own in results.items()} == {
        "a": [["speed", 2.5, "s"]],
        "b": [["size", 2.0, "MB"]],
    }
    assert all(
        {"machine", "date", "commit"} <= own.keys() for own in json.loads(path.read_text()).values()
    )
    page = (
        "x <!-- bench: a | speed | .1f -->9<!-- end --> y\n<!-- bench: b -->\nold\n<!-- end -->\n"
    )
    once = insert_figures(page, results)
    assert "-->2.5<!-- end --> y" in once
    assert re.search(r"^  size +2\.000 MB$", once, re.MULTILINE)
    assert "old" not in once
    assert insert_figures(once, results) == once


def test_an_unknown_figure_is_an_error() -> None:
    with pytest.raises(KeyError):
        insert_figures("<!-- bench: a | b | .1f -->1<!-- end -->", {"a": {"figures": []}})


def test_the_page_of_the_api_has_every_public_name() -> None:
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    named = set(re.findall(r"^::: ([\w.]+)$", expand_entries(page), flags=re.MULTILINE))
    public = {name: getattr(costopt, name) for name in costopt.__all__ if name != "__version__"}
    assert named == {f"{value.__module__}.{name}" for name, value in public.items()}


def test_the_list_of_the_api_says_what_the_code_says() -> None:
    """Entries are the first sentences of docstrings."""
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    for entry in ENTRY.finditer(page):
        text = " ".join(entry[0].partition("): ")[2].split())
        doc = inspect.getdoc(getattr(costopt, entry[1])) or ""
        assert " ".join(doc.replace("``", "`").split()).startswith(text), entry[1]
