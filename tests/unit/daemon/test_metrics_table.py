"""The table of metrics: its page, the rules and panels that ask for its rows, and a new row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from costopt.daemon.watch import metrics
from costopt.daemon.watch.metrics import (
    METRICS,
    HttpMetrics,
    MetricKind,
    MetricsEndpoint,
    MetricSpec,
    _of_jobs,
)
from costopt.daemon.watch.metrics_snapshot import collect_metrics
from docs.generated.metrics import metrics_page
from tests.support.daemon_api import served

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "costopt.json"
SELECTOR = re.compile(r"\b(costopt_[a-z_]+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\bby \(([^)]*)\)")
SHOWN = re.compile(r"\$labels\.([a-z_]+)|\{\{ *([a-z_]+) *\}\}")
EXPOSED = {name: set(spec.labels) for spec in METRICS for name in spec.exposed_names}


def asked() -> Iterator[tuple[str, str, str]]:
    """Where an expression stands, itself, and the text that shows what it returns."""
    for rule in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"], " ".join(rule["annotations"].values())
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target.get("legendFormat", "")
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"], ""


@pytest.mark.parametrize(("where", "expression", "shown"), list(asked()))
def test_rules_and_panels_ask_for_metrics_and_labels_of_the_table(
    where: str, expression: str, shown: str
) -> None:
    names = {name for name, _ in SELECTOR.findall(expression)}
    assert names, where
    assert names <= EXPOSED.keys()
    for name, selector in SELECTOR.findall(expression):
        chosen = set(re.findall(r"([a-z_]+) *[=!]", selector))
        assert chosen <= EXPOSED[name], (where, name)
    labels = {"le", *(label for name in names for label in EXPOSED[name])}
    grouped = {each.strip() for group in GROUPED.findall(expression) for each in group.split(",")}
    assert grouped <= labels
    assert {one or other for one, other in SHOWN.findall(shown)} <= (grouped or labels)


def test_each_metric_stands_once_and_says_what_it_is() -> None:
    names = [spec.name for spec in METRICS]
    assert len(set(names)) == len(names)
    assert [spec.name for spec in METRICS if not spec.help.endswith(".")] == []


def test_every_metric_of_the_table_is_exposed(tmp_path: Path) -> None:
    with served(tmp_path) as daemon:
        page = MetricsEndpoint(daemon.service, HttpMetrics(), None).text().decode()
    families = {each.name: each for each in text_string_to_metric_families(page)}
    assert list(families) == [spec.name for spec in METRICS]
    for spec in METRICS:
        assert families[spec.name].type == spec.kind.value
        assert families[spec.name].documentation == spec.help
        for sample in families[spec.name].samples:
            assert set(sample.labels) - {"le"} == set(spec.labels)


def test_a_new_metric_is_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = MetricSpec(
        "costopt_checkpoints", MetricKind.COUNTER, "Checkpoints committed.", metrics.JOB,
        _of_jobs(lambda job: job.summary.checkpoints),
    )  # fmt: skip
    monkeypatch.setattr(metrics, "METRICS", (*METRICS, row))
    with served(tmp_path) as daemon:
        page = MetricsEndpoint(daemon.service, HttpMetrics(), None).text().decode()
        expected = {
            each.job: each.summary.checkpoints for each in collect_metrics(daemon.service).jobs
        }
    found = re.findall(r'^costopt_checkpoints_total\{job="(\w+)",tenant="\w+"\} (.*)', page, re.M)
    assert {job: float(value) for job, value in found} == expected
    assert expected
    assert "`costopt_checkpoints_total`" in metrics_page()
