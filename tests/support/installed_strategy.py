"""A package that brings a strategy, as an installer leaves it on the search path."""

from __future__ import annotations

from pathlib import Path

import pytest

MINE = '''\
"""A strategy outside of costopt: the cheapest gang that can be had, and nothing else."""

from costopt.domain.view import Decision, Desired
from costopt.strategies.gang_options import gang_options


class Mine:
    joint = True

    def __init__(self, patience: float = 2.0, label: str = "mine", history=None):
        self.patience, self.label = patience, label

    def decide(self, view):
        return Desired(tuple(self._decide(view, each) for each in view.jobs))

    def _decide(self, view, job_view):
        options = [each for each in gang_options(view, job_view) if each.free]
        best = min(options, key=lambda each: each.score_usd_per_hour, default=None)
        return Decision(job_view.job.name, () if best is None else best.targets, self.label)
'''


def install_strategy(
    monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, value: str, source: str = MINE
) -> None:
    """Let the entry point ``name`` of a package in ``folder`` be ``value``; its module is
    ``source``, named as ``value`` says, unless ``value`` names a module that is there already."""
    module = value.split(":", maxsplit=1)[0]
    if "." not in module:
        (folder / f"{module}.py").write_text(source, encoding="utf-8")
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[costopt.strategies]\n{name} = {value}\n")
    monkeypatch.syspath_prepend(folder)
