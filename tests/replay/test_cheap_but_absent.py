"""A cheap pool that is seldom there must not keep a job waiting beside a dearer one that is."""

from __future__ import annotations

from pathlib import Path

from costopt.backtesting.replay import replay
from costopt.catalog import load_catalog
from costopt.controller.forecasts import catalog_hazard_priors
from costopt.energy import NodePowerModel
from costopt.market.hazard import LearnedHazard
from costopt.spec import load_job, load_policy
from tests.support.market_fixtures import ELSEWHERE, ON_DEMAND, SPOT, T0, market, pool_history

HOUR = 3600
JOB = """\
name: train
work: {amount: 1944000, unit: samples}  # 18 h on one node
deadline: 26h
resources: {gpu_models: [V100], min_nodes: 1, max_nodes: 4}
throughput: {points: [{gpu: V100, units_per_s: 30}]}
checkpoint: {uri: checkpoints, size_gib: 5, save: 30s, restore: 60s}
"""


def test_a_pool_that_never_comes_back_is_not_waited_for(tmp_path: Path) -> None:
    """On the steady spot pool the job costs a third of what it costs on demand."""
    days = 3 * 24 * HOUR
    record = market(
        pool_history(SPOT, [(0, 1, 0.4), (1200, 0, 0.4)], days),
        pool_history(ELSEWHERE, [(0, 1, 1.0)], days),
        pool_history(ON_DEMAND, [(0, 100, 3.0)], days),
        tick_s=600.0,
    )
    catalog = load_catalog()
    policy = load_policy("cheapest")
    (tmp_path / "job.yaml").write_text(JOB)
    run = replay(
        load_job(tmp_path / "job.yaml", T0),
        policy,
        record,
        machines=catalog,
        powers=NodePowerModel(catalog),
        hazards=LearnedHazard(catalog_hazard_priors(catalog)),
    )
    assert run.summary.on_time
    assert run.summary.usd < 25.0
