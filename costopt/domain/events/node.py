"""Events of nodes, from the intent to launch them to the final bill, and what they report."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from costopt.domain.account_price import CommitmentKind
from costopt.domain.contracts import ContractTerms
from costopt.domain.events.job import Event
from costopt.domain.fleet import EndCause
from costopt.domain.gpu_health import HealthIssue
from costopt.domain.policy import CarbonSignal

NOT_SENT_ERROR = "NotSent"
"""The error of a launch that was announced, but never requested from the provider."""

UNKNOWN_BASIS = "unknown"
"""The ``energy_basis`` of a node whose power is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchIntended(Event):
    """Written before the provider is called; ``key`` makes the call idempotent."""

    key: str
    pool: str
    nodes: int
    planned_micros_per_hour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLaunched(Event):
    """The provider confirms a node. It is billed from ``launched_at``.

    While it is ``waiting`` for capacity it costs and draws nothing; once it runs, another event
    records since when. ``idle_w``, ``busy_w`` and ``pue`` are all None where the node's power is
    unknown, and so is its energy. ``gco2e_per_kwh`` is the annual mean of the region for
    ``carbon_signal``, for the hours whose intensity is not recorded. ``communication_share`` is the
    share of ``busy_w`` that the node does not draw while it waits for its gang.
    ``embodied_gco2e_per_hour`` is the share of the machine's making, None where it is unknown.

    ``micros_per_hour`` is what the node adds to the account's bill. Where terms of the account
    changed the price, ``list_micros_per_hour`` is the provider's public price and
    ``contracted_micros_per_hour`` the account's without commitments, None where unknown. With a
    ``commitment``, ``committed_micros_per_hour`` is the part of it that the node uses, which is
    paid for whether it is used or not; None where unknown.
    ``volume_micros_per_hour`` is the list price of its root volume, None where it is unknown.
    """

    key: str
    node_id: str
    pool: str
    launched_at: datetime
    micros_per_hour: int
    idle_w: float | None
    busy_w: float | None
    pue: float | None
    gco2e_per_kwh: float | None
    energy_basis: str
    waiting: bool = False
    carbon_signal: CarbonSignal | None = None
    communication_share: float = 0.0
    embodied_gco2e_per_hour: float | None = None
    list_micros_per_hour: int | None = None
    contracted_micros_per_hour: int | None = None
    committed_micros_per_hour: int | None = 0
    commitment: CommitmentKind | None = None
    volume_micros_per_hour: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFailed(Event):
    """The launch of ``key`` failed; no node of it exists.

    ``error`` names the provider's error, or is ``NOT_SENT_ERROR`` or "lost".
    """

    key: str
    pool: str
    error: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChanged(Event):
    """From ``at`` on, every node of ``pool`` that runs for the job costs this much.

    ``list_micros_per_hour`` and ``committed_micros_per_hour`` are those of ``NodeLaunched``.
    """

    pool: str
    micros_per_hour: int
    list_micros_per_hour: int | None = None
    committed_micros_per_hour: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CarbonIntensityRecorded(Event):
    """The carbon intensity of a region's electricity for one hour in which nodes of the job ran.

    ``region`` is "provider/region"; ``hour_at`` the beginning of the hour, a whole hour of UTC. A
    later event for the same hour replaces this one.
    """

    region: str
    hour_at: datetime
    gco2e_per_kwh: float
    carbon_signal: CarbonSignal
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectricityContractsRecorded(Event):
    """The account's contracts for electricity, by which market-based emissions of the whole job
    count from now on; a later event replaces this one.

    Each is (name, provider, gCO2e/kWh, regions, beginning, end, kind); no regions are all of the
    provider's; the kind is "contract" or "residual_mix", which counts where no contract does.
    """

    contracts: tuple[ContractTerms, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFetched(Event):
    """A node has the job's cache on its disk: it fetched ``gib`` in ``seconds`` of the job's time,
    and had ``held_gib``."""

    node_id: str
    gib: float
    held_gib: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLimitReported(Event):
    """What a node reports of the power limit that was requested for its GPUs.

    ``cap_w`` is the limit of each GPU in force from ``at`` on, None where there is none; ``busy_w``
    what the whole node draws under it while it trains, None where unknown. ``message`` says how it
    came about. Where ``asked_w`` was requested and there is no limit, the node could not set it.
    """

    node_id: str
    cap_w: float | None
    busy_w: float | None
    message: str
    asked_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLimitProbed(Event):
    """What the job's gang did for some minutes under one power limit, as part of a sweep.

    ``cap_w`` is the limit of each GPU of ``gpu_model``, None without one of ours: a sweep of a
    generation begins so. ``units_per_s`` is the gang's speed, ``node_w`` the mean of its nodes at
    the plug, ``gpu_w`` what their meters read per GPU, with the rest of the node where they read
    it. ``min_w`` is the lowest limit that every GPU allows, ``limit_w`` the lowest in force before.
    Where ``message`` is not empty, nothing was measured, and the sweep ends.
    """

    generation: int
    gpu_model: str
    cap_w: float | None = None
    units_per_s: float | None = None
    node_w: float | None = None
    gpu_w: float | None = None
    min_w: float | None = None
    limit_w: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMeasured(Event):
    """A node's own measurements from ``from_at`` until ``until_at``; unknown is None.

    A later event with the same ``from_at`` holds all that this one does. ``wh`` is what the node
    drew at its plug: what the meters of ``parts`` ("gpu", "cpu") read, the other parts as modelled,
    or what a meter of the whole "node" read; before PUE. ``busy_w`` is the mean at the plug while
    the trainer trained. ``gpu_utilization``, ``gpu_memory_share``, ``data_wait_share`` and
    ``goodput`` are shares of 0–1, ``step_s`` the mean time of a step in the job's time.
    """

    node_id: str
    from_at: datetime
    until_at: datetime
    wh: float | None = None
    parts: tuple[str, ...] = ()
    busy_w: float | None = None
    gpu_utilization: float | None = None
    gpu_memory_share: float | None = None
    step_s: float | None = None
    data_wait_share: float | None = None
    goodput: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionExpected(Event):
    """The provider warns that the node is likely to be interrupted, short of a notice.

    ``message`` is "" once the warning has ended.
    """

    node_id: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionNoticed(Event):
    """The interruption of the node was announced.

    ``confirmed``: by the provider itself. Otherwise only the node reports it, where the job's own
    command may forge reports: the provider's confirmation follows as another such event.
    """

    node_id: str
    pool: str
    interrupts_at: datetime
    confirmed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeWithdrawn(Event):
    """The node has withdrawn its notice of an interruption, and the provider never confirmed it."""

    node_id: str
    pool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthChanged(Event):
    """A node became idle, slow or faulty by the policy's rules, or healthy again.

    ``issue`` is None once it is healthy. The whole gang is meant where ``node_id`` is "".
    """

    node_id: str
    issue: HealthIssue | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReplaced(Event):
    """An unhealthy node is to be drained, and another takes its place.

    With ``pool_rests`` the job launches nothing in ``pool`` for the cooldown.
    """

    node_id: str
    pool: str
    message: str
    pool_rests: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainIntended(Event):
    """The node is asked to checkpoint; it is released when it has."""

    node_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateIntended(Event):
    """Written before the provider is asked to terminate the node."""

    node_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnded(Event):
    """The node has ended, and is billed until ``ended_at``.

    ``estimated``: the provider did not report when, so that ``ended_at`` is when the node was last
    listed or sent its last heartbeat, or when its end was seen if neither is known. Ends with the
    cause "lost" are estimates in ledgers before this field as well. An end that the provider
    reports later follows as another NodeEnded, which replaces this one. ``message`` is what the
    provider reports about it, "" if nothing.
    """

    node_id: str
    pool: str
    ended_at: datetime
    cause: EndCause
    message: str = ""
    estimated: bool = False


def has_estimated_end(event: NodeEnded) -> bool:
    """Return whether the provider may still report another end."""
    return event.estimated or event.cause is EndCause.LOST


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGivenUp(Event):
    """The node runs and does not report; it is to be terminated and replaced."""

    node_id: str
    pool: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReturned(Event):
    """The provider lists a lost node again: it never ended, and is billed as if it had not."""

    node_id: str
    pool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBilled(Event):
    """What the provider charges for a node that has ended; replaces the cost computed so far.

    ``prices`` are (from when, micro-dollars per hour), the first from the launch on. The node is
    charged for ``min_billed_s`` seconds at least, at the last price. ``list_prices`` are the
    provider's own, where the account's terms changed them.
    """

    node_id: str
    pool: str
    prices: tuple[tuple[datetime, int], ...]
    min_billed_s: float
    source: str
    list_prices: tuple[tuple[datetime, int], ...] = ()
