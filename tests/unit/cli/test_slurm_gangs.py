"""Which gangs `costopt daemon slurm resume` releases where others hold nodes that Slurm needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from costopt.cli import slurm
from costopt.cli.slurm_commands import BurstGang
from costopt.client.client import DaemonClient


class Daemon:
    """Serves gangs by the names of their jobs, and notes which jobs are cancelled."""

    def __init__(self, **gangs: str) -> None:
        self.gangs = {f"slurm-{name}": nodes for name, nodes in gangs.items()}
        self.cancelled: list[str] = []

    def get_all(self, *path: str, rows: str, state: str) -> list[Any]:
        assert (path, rows, state) == (("jobs",), "jobs", "open")
        submissions = [{"name": name, "desired_state": "run"} for name in self.gangs]
        return [{"submission": s, "summary": {"state": "running"}} for s in submissions]

    def get(self, *path: str) -> Any:
        if path[-1] == "documents":
            return {"job": json.dumps({"env": {slurm.NODES: self.gangs[path[1]]}})}
        return {"nodes": [{"state": "running"}] * 2}

    def send(self, method: str, *path: str) -> None:
        assert (method, path[0], path[2]) == ("POST", "jobs", "cancel")
        self.cancelled.append(path[1])


def launcher(daemon: Daemon, monkeypatch: pytest.MonkeyPatch, used: set[str]) -> slurm._Launcher:
    monkeypatch.setattr(slurm, "nodes_in_use", lambda nodes: frozenset(nodes) & used)
    monkeypatch.setattr(slurm._Launcher, "_submit", lambda *_: "slurm-new")
    return slurm._Launcher(cast("DaemonClient", daemon), "", Path("job.yaml"))


def test_no_gang_is_released_where_another_keeps_the_launch_from_happening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon, wanted = Daemon(idle="c1,c2", busy="c3,c4"), BurstGang(("c2", "c3"))
    missing = launcher(daemon, monkeypatch, {"c4"}).launch({wanted: "cheapest"}, 60.0)
    assert missing == {wanted: "slurm-busy (c4 in use) holds some of these nodes"}
    assert daemon.cancelled == []


def test_gangs_that_nothing_uses_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon, wanted = Daemon(one="c1,c2", other="c3,c4", far="c5"), BurstGang(("c2", "c3"))
    assert launcher(daemon, monkeypatch, set()).launch({wanted: "cheapest"}, 60.0) == {}
    assert daemon.cancelled == ["slurm-one", "slurm-other"]
