"""The texts of all job and policy files that the tests of the file formats expect to be refused.

``python refused_files.py OUT`` runs these tests, and writes the texts as JSON.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import costopt.spec
import costopt.spec.load
import costopt.spec.yaml_document as yaml_document
from costopt.domain.errors import SpecError

FOLDER = Path(__file__).parents[1] / "unit" / "spec"
FILES = ("test_job.py", "test_policy.py", "test_array.py", "test_schedule.py", "test_document.py")


class Recorder:
    """Notes the text of each file that a parser refuses."""

    def __init__(self) -> None:
        self.refused: dict[str, set[str]] = {"job": set(), "policy": set()}
        self._texts: dict[int, tuple[object, str]] = {}

    def install(self) -> None:
        """Wrap the functions that read and parse files, wherever a test imports them from."""
        yaml_document.parse_document = self._reader(yaml_document.parse_document)
        for kind in self.refused:
            parse = self._parser(kind, getattr(costopt.spec.load, f"parse_{kind}"))
            for module in (costopt.spec, costopt.spec.load):
                setattr(module, f"parse_{kind}", parse)

    def _reader(self, read: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(read)
        def recording(text: Any, path: str, *rest: Any, **more: Any) -> Any:
            document = read(text, path, *rest, **more)
            self._texts[id(document)] = document, str(text)
            return document

        return recording

    def _parser(self, kind: str, parse: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(parse)
        def recording(document: Any, *rest: Any, **more: Any) -> Any:
            try:
                return parse(document, *rest, **more)
            except SpecError:
                known = self._texts.get(id(document))
                if known is not None:
                    self.refused[kind].add(known[1])
                raise

        return recording


if __name__ == "__main__":
    recorder = Recorder()
    recorder.install()
    code = pytest.main(["-q", "-p", "no:cacheprovider", *(str(FOLDER / name) for name in FILES)])
    if code:
        sys.exit(code)
    texts = {kind: sorted(found) for kind, found in recorder.refused.items()}
    Path(sys.argv[1]).write_text(json.dumps(texts), encoding="utf-8")
