"""What a trainer measures of its own steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """Unknown is None; seconds are the wall's on the node, the job's in the controller.

    ``step_s`` is the mean time of a step, ``data_wait_share`` the share of it (0–1) spent waiting
    for data, ``microbatch_s`` the mean time that this process itself took for a microbatch, without
    waiting for the others of its gang, ``goodput`` the share of time since this process began that
    went into steps that still count.
    """

    step_s: float | None = None
    data_wait_share: float | None = None
    goodput: float | None = None
    microbatch_s: float | None = None
