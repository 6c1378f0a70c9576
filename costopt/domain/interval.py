"""How often to checkpoint: the interval that loses least to saving and to interruptions."""

from __future__ import annotations

import math

SHORTEST_S = 5.0


def checkpoint_interval_s(
    *,
    hazard_per_hour: float,
    blocking_save_s: float,
    noticed_share: float = 0.0,
    persist_s: float = 0.0,
    loss_budget_s: float = 1800.0,
) -> float:
    """Seconds between saves: τ = √(2 · MTBF · c / (1 − p)), floored and capped.

    c is ``blocking_save_s``, the time for which a save stops the training; p is
    ``noticed_share``, the share of interruptions with a notice long enough to save on. With
    p = 0 this is Young's first-order optimum (Young 1974; Daly 2006, doi:10.1016/
    j.future.2004.11.016); only unannounced interruptions lose work, so their rate is the hazard
    times (1 − p). The floor is ``persist_s``, since a save must be durable before the next, and
    the cap ``loss_budget_s``, the most work that one interruption may lose. Without hazard or
    with p = 1 the answer is the cap.
    """
    floor = max(persist_s, SHORTEST_S)
    unannounced = hazard_per_hour * (1.0 - noticed_share)
    if unannounced <= 0:
        return max(floor, loss_budget_s)
    interval = math.sqrt(2 * (3600 / unannounced) * max(blocking_save_s, 0.0))
    return min(max(interval, floor), max(floor, loss_budget_s))
