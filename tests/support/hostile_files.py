"""Job and policy files with impossible, extreme and wrong values, made from valid ones."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import yaml

from tests.support.daemon_fixtures import POLICY, document

JOBS = (
    document(),
    document(more="schedule: {cron: '*/5 * * * *'}\n", deadline="20h"),
    """
kind: job
version: 1
name: array
array: {tasks: 20, parallel: 1..4, duration: 5m}
deadline: 10h
resources: {gpu_models: [V100]}
run: [python, eval.py, "{task}"]
""",
    """
kind: job
version: 1
name: model
model: {params: 1e9, tokens: 1e8, method: full, sequence: 2048}
deadline: 100h
resources: {gpu_models: [V100], min_nodes: 1, max_nodes: 4}
checkpoint: {uri: saves}
run: [python, train.py]
""",
    """
kind: job
version: 1
name: phases
work: {amount: 3600, unit: steps}
deadline: 30h
resources: {gpu_models: [V100], min_nodes: 1, max_nodes: 4}
throughput: {points: [{gpu: V100, gpus: 1, units_per_s: 1}], scaling_efficiency: 0.9}
checkpoint: {uri: saves, size_gib: 1, save: auto, restore: auto, interval: auto}
phases:
- {name: a, share: 0.5, min_nodes: 1, max_nodes: 2, evaluation: {every: 10, duration: 5s}}
- {name: b, share: 0.5, min_nodes: 1, max_nodes: 4, may_pause: false}
budget: {usd: 100, kwh: 100, usd_per_month: 50, usd_per_hour: 10}
data: {uri: 's3://bucket/data', size_gib: 3}
startup: 1m
run: [python, train.py]
""",
)
POLICIES = (
    POLICY,
    """
kind: policy
version: 1
name: adaptive
strategy: {name: adaptive}
risk: {reserve: 10m, on_time: 0.95}
limits: {max_usd_per_hour: 50.0, max_usd_per_month: 5000, max_nodes: 4, max_launches_per_hour: 60}
objective: {usd: 1}
""",
    "kind: policy\nversion: 1\nname: zones\nstrategy: milp\nlimits: {max_zone_share: 0.5}\n",
    "kind: policy\nversion: 1\nname: priced\nstrategy: priced\n",
    "kind: policy\nversion: 1\nname: paced\nstrategy: uniform_progress\n",
)
VALUES: tuple[Any, ...] = (
    0, -1, 1, 2, 0.5, 1.0, 0.999999999999, 3.7, 100, 10**6, 10**9, 10**12, 10**30, 1e300, 1e308,
    1e-308, 5e-324, float("inf"), float("nan"), True, None, "", "x", "*", "1e308", "0.000001s",
    "1ms", "1s", "1w", "100000000d", "999999999999h", "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z", "auto", [], {}, ["a"] * 3, "V100", "s3://", "file:///etc/passwd",
    "../../x", "\u00e9" * 70, "{task}", "{" * 50, "adaptve",
)  # fmt: skip


def hostile_file(chances: random.Random, texts: tuple[str, ...], name: str | None = None) -> str:
    """Return one of the files with up to three values replaced or left out, renamed if named."""
    values = yaml.safe_load(chances.choice(texts))
    for _ in range(chances.choice((1, 1, 1, 2, 3))):
        values = _changed(chances, values)
    if name is not None:
        values["name"] = name
    text: str = yaml.safe_dump(values, allow_unicode=True)
    return text


def _changed(chances: random.Random, values: Any) -> Any:
    values = copy.deepcopy(values)
    places = [path for path in _paths(values) if path[:1] not in ((), ("kind",), ("version",))]
    if not places:
        return values
    *above, last = chances.choice(places)
    parent = values
    for part in above:
        parent = parent[part]
    if isinstance(parent, dict) and chances.random() < 0.15:
        del parent[last]
    else:
        parent[last] = chances.choice(VALUES)
    return values


def _paths(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(values, dict):
        for key in values:
            yield from _paths(values[key], (*path, key))
    elif isinstance(values, list):
        for number, item in enumerate(values):
            yield from _paths(item, (*path, number))
