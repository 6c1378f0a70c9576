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
