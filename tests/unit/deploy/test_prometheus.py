"""What is shipped for Prometheus and Grafana asks for metrics that the daemon has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from costopt.daemon.watch import metrics
from costopt.daemon.watch.metrics import HttpMetrics, MetricsEndpoint
from costopt.daemon.watch.metrics_snapshot import collect_metrics
from tests.support.daemon_api import Served, served
from tests.support.live_run import PATIENCE_S

DEPLOY = Path(__file__).parents[3] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
DASHBOARD = DEPLOY / "grafana" / "costopt.json"
NAME = re.compile(r"\bcostopt_[a-z_]+")
PROMETHEUS_TYPES = ("_bucket", "_sum", "_count")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("daemon")) as each:
        yield each


@pytest.fixture(scope="module")
def page(daemon: Served) -> str:
    http = HttpMetrics()
    http.count("listJobs", 200, 0.01)
    return MetricsEndpoint(daemon.service, http, None).text().decode()


def names_of(page: str) -> set[str]:
    """Metrics of the page as Prometheus stores them."""
    found: set[str] = set()
    for family in text_string_to_metric_families(page):
        if family.type == "histogram":
            found |= {family.name + suffix for suffix in PROMETHEUS_TYPES}
        else:
            found.add(family.name + ("_total" if family.type == "counter" else ""))
    return found


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def test_every_rule_asks_for_what_there_is(page: str) -> None:
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
    asked = {name for rule in rules for name in NAME.findall(rule["expr"])}
    assert asked
    assert asked <= names_of(page)


def test_every_panel_asks_for_what_there_is(page: str) -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = {name for p in board["panels"] for e in expressions(p) for name in NAME.findall(e)}
    assert asked
    assert asked <= names_of(page)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_no_panel_lies_on_another() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def promtool(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed: rules and metrics were not checked with it")
    return subprocess.run(
        [program, *arguments], input=given, capture_output=True, text=True, timeout=PATIENCE_S
    )


@pytest.mark.parametrize(
    "arguments", [("check", "rules", "alerts.yaml"), ("test", "rules", "alerts.test.yaml")]
)
def test_promtool_accepts_the_rules(arguments: tuple[str, str, str]) -> None:
    done = promtool(*arguments[:2], str(ALERTS.with_name(arguments[2])))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def test_promtool_accepts_the_metrics(page: str) -> None:
    done = promtool("check", "metrics", given=page)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_promtool_accepts_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    rules = [
        {"record": f"panel:{number}:{index}", "expr": expression.replace("$job", ".*")}
        for number, panel in enumerate(board["panels"])
        for index, expression in enumerate(expressions(panel))
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_counter_does_not_fall_where_a_bill_corrects_it(
    daemon: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    page = MetricsEndpoint(daemon.service, HttpMetrics(), None)
    seen = collect_metrics(daemon.service)

    def spent(usd: float) -> str:
        summary = replace(seen.jobs[0].summary, usd_micros=round(usd * 1e6))
        jobs = (replace(seen.jobs[0], summary=summary),)
        figures = replace(seen, jobs=jobs)
        monkeypatch.setattr(metrics, "collect_metrics", lambda _: figures)
        line = 'costopt_spend_usd_total{job="one",tenant="default"} '
        return next(each for each in page.text().decode().splitlines() if each.startswith(line))

    assert [spent(usd).split()[-1] for usd in (5.0, 4.0, 6.0)] == ["5.0", "5.0", "6.0"]
