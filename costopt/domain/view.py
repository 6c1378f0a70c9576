"""The view that a strategy decides on, and its decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from costopt.domain.account import UNLIMITED, Account
from costopt.domain.estimate import Series
from costopt.domain.fleet import Node
from costopt.domain.job import Job
from costopt.domain.market import InstanceType, Offer, Pool
from costopt.domain.notices import NoticePeriod, spot_notice_s
from costopt.domain.plan import HourlyPlan, Rejection
from costopt.domain.policy import Policy
from costopt.domain.power import NodePower
from costopt.domain.progress import Progress
from costopt.domain.transfers import Transfer


@dataclass(frozen=True, slots=True)
class JobView:
    """One job, its progress and the living nodes that work for it.

    ``speed_factor`` is the job's measured speed over the speed that its spec predicts, 1.0 until
    the nodes have reported. ``capped_speed`` is the share of the speed without power limits that
    those in force leave; ``progress.measured_units_per_s`` is under them, ``speed_factor`` without.
    ``nodes`` holds none of those ``waiting`` for capacity, which may never come.
    """

    job: Job
    progress: Progress
    nodes: tuple[Node, ...] = ()
    speed_factor: float = 1.0
    capped_speed: float = 1.0
    waiting: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """Everything on which a decision may depend.

    ``offers`` are the usable ones: price known and fresh, allowed by the policy; the others are in
    ``rejections``. ``tick_s`` is how long the decision will be in force. ``firm_s`` is for how long
    from now no node that runs or is launched now can be interrupted: 0 on a live cloud, up to the
    next grid point on a recorded market. ``transfers`` are by ("provider/region" from,
    "provider/region" to), for the places of the jobs' data and checkpoints. ``price_forecasts`` are
    dollars per node-hour by pool, the present price where there is none; ``carbon_forecasts`` g/kWh
    by "provider/region". ``limit_prices`` are dollars per node-hour by pool that the need of others
    for the limits that jobs share makes a node worth; they are not paid. ``notice_s`` is the notice
    of an interruption, by pool. ``worked_out`` is the memo that strategies share, by the id of a
    JobView and together with it; a view that is derived from this one begins with an empty one.
    """

    now: datetime
    tick_s: float
    uninterruptible_s: float
    jobs: tuple[JobView, ...]
    offers: tuple[Offer, ...]
    machines: Mapping[Pool, InstanceType]
    powers: Mapping[Pool, NodePower]
    policy: Policy
    rejections: tuple[Rejection, ...] = ()
    transfers: Mapping[tuple[str, str], Transfer] = field(default_factory=dict)
    account: Account = UNLIMITED
    price_forecasts: Mapping[Pool, Series] = field(default_factory=dict)
    carbon_forecasts: Mapping[str, Series] = field(default_factory=dict)
    limit_prices: Mapping[Pool, Series] = field(default_factory=dict)
    notice_s: NoticePeriod = spot_notice_s
    memo: dict[int, tuple[JobView, Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )


@dataclass(frozen=True, slots=True)
class Target:
    """``nodes`` desired in ``pool``."""

    pool: Pool
    nodes: int
    power_cap_w: float | None = None


@dataclass(frozen=True, slots=True)
class Alternative:
    """An action that a job could have taken instead, or took, as the strategy assessed it.

    ``choice`` is "wait" or the gang, as in "1 × aws/us-west-2/us-west-2a/p3.2xlarge/spot".
    ``value_usd`` is the policy's objective from now to the end of the job if this is done now and
    the strategy followed afterwards: expected dollars, with energy and carbon at their weights.
    None where it is unavailable or would miss the deadline. ``note`` says why, or on which
    estimates the value is based.
    """

    choice: str
    value_usd: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """What a round of a cluster planned for a job: ``gpus`` of it, 0 for none, at this price.

    The price is what a GPU-hour of the cluster is worth to those that compete for it; it is not
    paid. ``asked_gpus`` are those that the job asks for.
    """

    cluster: str
    usd_per_gpu_hour: float
    gpus: int
    asked_gpus: int


STOP = "stop"
"""The rule of a decision for a job that must checkpoint and release its nodes."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What one job should run on now; no targets means: wait.

    ``reason`` says why in a sentence; ``rule`` names what determined the decision (shield,
    cooldown, guard), or is None where the strategy was free. ``slack_s`` is the time that would
    remain if the job went to its safest capacity now; None where no such capacity is allowed.
    ``alternatives`` are those that the strategy assessed, if it does. ``wait_usd`` is what running
    on nothing until the next tick is expected to cost beyond ``targets``, infinite where the job
    would be late; None where the strategy does not say. ``plan`` is that of a
    cluster's round, or of jobs that share limits, None where there was none.
    """

    job: str
    targets: tuple[Target, ...]
    reason: str
    rule: str | None = None
    slack_s: float | None = None
    alternatives: tuple[Alternative, ...] = ()
    wait_usd: float | None = None
    plan: CapacityPlan | HourlyPlan | None = None


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state: one decision per unfinished job."""

    decisions: tuple[Decision, ...]
