"""The prices at which one job looks for its best schedule."""

from __future__ import annotations

from dataclasses import dataclass

from costopt.optimize.rates import Array


@dataclass(frozen=True, slots=True)
class PricingDuals:
    """Of work, (Q,), and of what is shared: ``shared`` (T, N) per slot and row of the menu, None
    for free; ``usd`` and ``kwh`` on top of the objective, for budgets.
    """

    work: Array
    shared: Array | None = None
    usd: float = 0.0
    kwh: float = 0.0
