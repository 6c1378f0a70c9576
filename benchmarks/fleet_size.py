"""One size of the fleet benchmark, in a process of its own so that its memory is its own.

``python -m benchmarks.fleet_size 500x168x50 10`` prints JSON rows of (name, value, unit).
"""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from pathlib import Path

from benchmarks.fleet_instance import instance
from benchmarks.fleet_tick import after_tick
from costopt.domain.plan import Plan, PlanStatus
from costopt.optimize.colgen.warm_start import WarmStart
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest
from tests.support.plan_check import shared_faults_of

TICK_S = 900.0
Row = tuple[str, float, str]


def size(text: str) -> tuple[int, int, int]:
    """Pools, slots and jobs of ``500x168x50``; raises ValueError for anything else."""
    pools, slots, jobs = (int(count) for count in text.split("x"))
    if min(pools, slots, jobs) < 1:
        raise ValueError(f"{text!r} has a count below 1")
    return pools, slots, jobs


def measure(pools: int, slots: int, jobs: int, time_limit_s: float) -> list[Row]:
    """Plan the instance, then plan it again one tick later; figures that do not exist are NaN."""
    began = time.perf_counter()
    request = instance(pools, slots, jobs)
    rows: list[Row] = [("made up in", time.perf_counter() - began, "s")]
    began = time.perf_counter()
    warm = WarmStart()
    made = plan(request, time_limit_s=time_limit_s, explain=False, warm=warm)
    first_s = time.perf_counter() - began
    rows.append(("planned in", first_s, "s"))
    rows += _figures(request, made)
    rows.append(("peak memory", _peak_gib(), "GiB"))
    if made.status in (PlanStatus.OPTIMAL, PlanStatus.FEASIBLE):
        rows += _re_plan(request, made, warm, time_limit_s, first_s)
    return rows


def _figures(request: PlanRequest, made: Plan) -> list[Row]:
    build_s = getattr(made, "build_s", math.nan)
    return [
        ("of it the model's building and transfer", build_s, "s"),
        ("objective", _known(made.objective_usd), "$"),
        ("bound", _known(made.bound_usd), "$"),
        ("gap", 100 * _known(made.gap), "%"),
        (f"jobs served of {len(request.jobs)}", float(_served(request, made)), ""),
        ("quotas and pools overdrawn", float(len(shared_faults_of(request, made))), ""),
    ]


def _served(request: PlanRequest, made: Plan) -> int:
    planned = {name for name, _ in made.forecasts} & {a.job for a in made.allocations}
    return len({view.job.name for view in request.jobs} & planned - set(made.unserved))


def _re_plan(
    request: PlanRequest, made: Plan, warm: WarmStart, time_limit_s: float, first_s: float
) -> list[Row]:
    later = after_tick(request, made, TICK_S)
    began = time.perf_counter()
    next_plan = plan(later, time_limit_s=time_limit_s, explain=False, warm=warm)
    took_s = time.perf_counter() - began
    return [
        ("planned again a tick later in", took_s, "s"),
        ("of the first plan's time", 100 * took_s / first_s, "%"),
        ("its gap", 100 * _known(next_plan.gap), "%"),
        (f"its jobs served of {len(later.jobs)}", float(_served(later, next_plan)), ""),
    ]


def _known(value: float | None) -> float:
    return math.nan if value is None else value


def _peak_gib() -> float:
    """Linux counts the parent's peak to getrusage's, so its own counter goes first."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    print(json.dumps(measure(*size(sys.argv[1]), float(sys.argv[2]))))
