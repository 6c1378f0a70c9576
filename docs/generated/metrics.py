"""The page of the daemon's metrics, from their table."""

from __future__ import annotations

from costopt.daemon.watch import metrics

HEAD = """\
# Metrics

`GET /metrics` of the daemon exposes these in Prometheus's text format. Alert rules are in
`deploy/prometheus/alerts.yaml`, a dashboard in `deploy/grafana/costopt.json`. Counters of jobs,
tenants and launches are totals since the jobs were submitted, the others are since the process
began. A figure that is unknown is absent. Jobs have series while they are open and for an hour
after they ended; the sums by tenant go on.

| Name | Kind | Labels | Meaning |
|---|---|---|---|
"""


def metrics_page() -> str:
    """Return the whole page."""
    rows = (
        f"| {', '.join(f'`{name}`' for name in spec.exposed_names)} | {spec.kind.value} "
        f"| {', '.join(f'`{label}`' for label in spec.labels) or '–'} | {spec.help} |\n"
        for spec in metrics.METRICS
    )
    return HEAD + "".join(rows)
