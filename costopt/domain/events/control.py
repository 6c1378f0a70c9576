"""What guards stop, what people tell the daemon, and what it may not do or cannot know."""

from __future__ import annotations

from dataclasses import dataclass

from costopt.domain.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardTripped(Event):
    """A guard stopped launches, or gave the nodes of ``pool`` back."""

    kind = "GuardTripped"

    guard: str
    message: str
    pool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChanged(Event):
    """From now on the daemon observes, recommends or enforces."""

    kind = "ModeChanged"

    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchesHalted(Event):
    """A person stopped all launches, or gave the halt that stands another reason."""

    kind = "LaunchesHalted"

    reason: str
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchesAllowed(Event):
    """Launches are halted no more."""

    kind = "LaunchesAllowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionProposed(Event):
    """What the daemon would do to nodes, and does not do by itself in this ``mode``.

    ``action`` is "launch", "drain" or "terminate"; a launch is of ``nodes`` and has no ``node_id``.
    The price is of one node, None where it is unknown or belongs to no action of this kind.
    """

    kind = "ActionProposed"

    proposal_id: str
    mode: str
    action: str
    pool: str
    nodes: int
    reason: str
    node_id: str | None = None
    micros_per_hour: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalStale(Event):
    """A price or signal is missing or too old, so its offers are excluded; or a job's own nodes
    cannot be heard or told, or its strategy fails, so that it keeps what it has."""

    kind = "SignalStale"

    source: str
    message: str
