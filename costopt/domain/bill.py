"""What a provider charges for a node, once it has ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class NodeBill:
    """The charge for a node by its provider's own rules.

    ``prices`` are (from when, dollars per hour): the first from the launch on, ascending, each in
    force until the next and the last until the node's end. ``least_s`` is the shortest time that is
    charged for, at the last price. ``source`` says which rule and which prices these are.
    """

    prices: tuple[tuple[datetime, float], ...]
    least_s: float
    source: str

    def __post_init__(self) -> None:
        if not self.prices:
            raise ValueError("a bill needs a price from the launch on")


@dataclass(frozen=True, slots=True)
class ProviderCharge:
    """What the provider's own accounts say that a job's nodes cost within whole days of UTC.

    ``from_at`` is the first day's beginning, ``until_at`` the end of the last. ``source`` says
    whose figure it is, and whether it may still change.
    """

    provider: str
    job: str
    from_at: datetime
    until_at: datetime
    usd: float
    source: str
