"""What stops launches: budgets, fleet size, watts, launch rate. Guards never stop a checkpoint."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from costopt.domain.fleet import Launch, Node
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.policy import Limits
from costopt.domain.ports import PowerModel
from costopt.engine.journal import Journal

MICROS = 1_000_000
ROUNDING_KW = 1e-9


@dataclass(frozen=True, slots=True)
class Refusal:
    """Which guard said no, and why; ``pool`` where it is to be left alone for a while."""

    guard: str
    message: str
    pool: str | None = None


class Guards:
    """Checks launches and spending against the policy and the job's budget."""

    def __init__(self, journal: Journal, powers: PowerModel) -> None:
        self._journal = journal
        self._powers = powers

    def over_budget(self, job: Job, limits: Limits, now: datetime) -> Refusal | None:
        """Whether the job has used up its money or energy, so that it must checkpoint and stop."""
        caps = [cap for cap in (job.budget.max_usd, limits.max_usd) if cap is not None]
        if not caps and job.budget.max_kwh is None and limits.max_usd_per_month is None:
            return None
        summary = self._journal.accounts[job.name].summary(now)
        spent = summary.usd_micros / MICROS
        if caps and spent >= min(caps):
            return Refusal("max_usd", f"spent ${spent:.2f} of a budget of ${min(caps):.2f}")
        if job.budget.max_kwh is not None and summary.wh / 1000 >= job.budget.max_kwh:
            return Refusal(
                "max_kwh",
                f"used {summary.wh / 1000:.2f} kWh of a budget of {job.budget.max_kwh:.2f} kWh",
            )
        month = limits.max_usd_per_month
        if month is not None and self._month_usd(now) >= month:
            return Refusal("max_usd_per_month", f"the ${month:.2f} of {now:%B %Y} are spent")
        return None

    def launch_refusal(
        self,
        launch: Launch,
        usd_per_hour: float,
        nodes: tuple[Node, ...],
        limits: Limits,
        now: datetime,
    ) -> Refusal | None:
        """Why this launch may not happen now, or None where it may."""
        if limits.max_nodes is not None and len(nodes) + launch.nodes > limits.max_nodes:
            return Refusal(
                "max_nodes",
                f"{len(nodes)} nodes run and {launch.nodes} more would exceed {limits.max_nodes}",
            )
        per_hour = sum(n.usd_per_hour for n in nodes) + usd_per_hour * launch.nodes
        if limits.max_usd_per_hour is not None and per_hour > limits.max_usd_per_hour:
            return Refusal(
                "max_usd_per_hour",
                f"the fleet would cost ${per_hour:.2f}/h, more than ${limits.max_usd_per_hour:.2f}",
            )
        if limits.max_kw is not None:
            kw = self._kw(launch, nodes)
            if kw > limits.max_kw + ROUNDING_KW:
                return Refusal(
                    "max_kw", f"the fleet would draw {kw:.2f} kW, more than {limits.max_kw:g} kW"
                )
        hour_ago = now - timedelta(hours=1)
        recent = sum(r.launches_since(hour_ago) for r in self._journal.records.values())
        most = limits.max_launches_per_hour
        if most is not None and recent + launch.nodes > most:
            return Refusal(
                "max_launches_per_hour", f"{recent} nodes were launched in the last hour"
            )
        return None

    def _kw(self, launch: Launch, nodes: tuple[Node, ...]) -> float:
        """What all nodes draw at the meter once they train, the launched ones included.

        The launching job's nodes count under the cap that it will ask of them all, the others under
        the limit that they keep now; a node whose power is unknown fits under no limit.
        """
        total = launch.nodes * self._node_kw(launch.pool, launch.power_cap_w)
        for node in nodes:
            cap_w = launch.power_cap_w
            if node.job != launch.job:
                limit = self._journal.records[node.job].power_limits.get(node.node_id)
                cap_w = None if limit is None else limit.cap_w
            total += self._node_kw(node.pool, cap_w)
        return total

    def _node_kw(self, pool: Pool, cap_w: float | None) -> float:
        power = self._powers.node_power(pool)
        if power is None:
            return math.inf
        capped = (cap.busy_w for cap in power.caps if cap.cap_w == cap_w)
        return next(capped, power.busy_w) * power.pue / 1000

    def _month_usd(self, now: datetime) -> float:
        """What the jobs of this engine have cost since the calendar month (UTC) began."""
        begins_at = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        accounts = self._journal.accounts.values()
        return sum(a.usd_micros_between(begins_at, now) for a in accounts) / MICROS
