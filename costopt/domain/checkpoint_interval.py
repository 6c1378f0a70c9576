"""The checkpoint interval that minimizes what saving and interruptions cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

MIN_INTERVAL_S = 5.0
LOSS_BUDGET_S = 1800.0
"""The most work that one interruption may lose."""


@dataclass(frozen=True, slots=True)
class ChosenInterval:
    """Seconds between saves, with the reason in words."""

    interval_s: float
    reason: str


def explained_interval(
    *,
    hazard_per_hour: float,
    blocking_save_s: float,
    noticed_share: float = 0.0,
    persist_s: float = 0.0,
    paid_s: float = 0.0,
    loss_budget_s: float = LOSS_BUDGET_S,
) -> ChosenInterval:
    """Return the time between saves with its reason: τ = √(2 · MTBF · c / (1 − p)), within limits.

    c is ``blocking_save_s``, the time for which a save stops the training, and ``paid_s``, for how
    long the gang could train for the dollars of a save; p is ``noticed_share``, the share of
    interruptions with a notice long enough to save on. With
    p = 0 this is Young's first-order optimum (Young 1974; Daly 2006, doi:10.1016/
    j.future.2004.11.016); only unannounced interruptions lose work, so their rate is the hazard
    times (1 − p). The floor is ``persist_s``, since a save must be durable before the next, and
    the cap ``loss_budget_s``, the most work that one interruption may lose. Without hazard or
    with p = 1 the answer is the cap.
    """
    floor = max(persist_s, MIN_INTERVAL_S)
    cap = max(floor, loss_budget_s)
    unannounced = hazard_per_hour * (1.0 - noticed_share)
    if unannounced <= 0:
        return ChosenInterval(
            cap, f"no interruption without notice is expected: at most {loss_budget_s:g} s are lost"
        )
    interval = math.sqrt(2 * (3600 / unannounced) * max(blocking_save_s + paid_s, 0.0))
    reason = (
        f"an unannounced interruption every {1 / unannounced:.3g} h, "
        f"a save stops training for {blocking_save_s:.3g} s"
    )
    if paid_s:
        reason += f" and costs as much as {paid_s:.3g} s of it"
    if interval < floor:
        return ChosenInterval(floor, f"{reason}; no shorter than a save takes to be durable")
    if interval > cap:
        return ChosenInterval(cap, f"{reason}; no more than {loss_budget_s:g} s may be lost")
    return ChosenInterval(interval, reason)
