"""The job that measures a speed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from costopt.planning.calibration import plan_calibration
from costopt.planning.quotes import recorded_quotes
from costopt.spec import load_unmeasured_job
from tests.support.market_fixtures import SPOT, pool_history
from tests.support.market_fixtures import market as market_of

JOB = "name: long\nwork: 90k steps\ndeadline: 30d\ncheckpoint: ckpt\nrun: python train.py\n"


def test_it_has_all_the_work_as_trainers_count_by_shares_of_it(tmp_path: Path) -> None:
    history = market_of(pool_history(SPOT, [(0, 4, 1.0)], 86_400))
    now = history.starts_at
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    job = load_unmeasured_job(path, now)
    planned = plan_calibration(job, recorded_quotes(history, now), None, 300.0)
    assert planned.job.work == job.work
    assert planned.limit_s < 4 * 3600
    assert planned.job.until_at > now + timedelta(seconds=planned.limit_s)
