"""Probes of power limits: what the gang does, and draws, for some minutes under one limit.

All nodes of a gang are limited at once: a gang is as fast as its slowest node, so that one limited
node would slow the others, and measure them rather than itself. A probe ends without its
controller; ``PowerLimiter`` restores the limits also where the agent does not end it.
"""

from __future__ import annotations

import time

from costopt.agent.attempt import Attempt
from costopt.agent.power_limit import PowerLimiter
from costopt.protocol.messages import Gang, NodeActivity, NodeMeasurement, PowerProbeReport
from costopt.protocol.trainer_files import TrainerStatus

SETTLE_SHARE = 0.125
"""Of a probe's seconds, before it measures: all nodes have set the limit by then."""
PATIENCE = 3.0
"""After this many times its seconds, a probe without two reports of the trainer is given up."""


class PowerProbes:
    """Follows the probes that a gang asks for. ``report`` is the newest that is over."""

    def __init__(self, power: PowerLimiter) -> None:
        self.report: PowerProbeReport | None = None
        self._power = power
        self._newest = (0, 0)
        self._gang: Gang | None = None
        self._cap_w: float | None = None
        self._range_w = (0.0, 0.0)
        self._measures_at = self._ends_s = 0.0
        self._first: tuple[TrainerStatus, NodeMeasurement] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a probe is under way."""
        return self._gang is not None

    def follow(self, attempt: Attempt, reading: NodeMeasurement) -> None:
        """Begin, continue or end the probe that the attempt's gang asks for."""
        trains = attempt.activity is NodeActivity.TRAINING
        asked = (attempt.gang.generation, attempt.gang.probe) if trains else (0, 0)
        if asked != self._newest:
            self._end(attempt)
            self._newest = asked
            if asked[1]:
                self._begin(attempt)
        elif self._gang is not None:
            self._measure(self._gang, attempt, reading)

    def _begin(self, attempt: Attempt) -> None:
        gang = self._gang = attempt.gang
        self._cap_w, self._first = None, None
        self._measures_at = time.time() + SETTLE_SHARE * gang.probe_s
        self._ends_s = time.monotonic() + (SETTLE_SHARE + PATIENCE) * gang.probe_s
        try:
            lowest_w, limit_w = self._range_w = self._power.range_w()
        except ValueError as error:
            self._fail(attempt, str(error))
            return
        if gang.probe_cap_w is None:
            return
        cap_w = max(gang.probe_cap_w, lowest_w)
        if cap_w >= limit_w:
            self._fail(attempt, f"{cap_w:g} W is not below the limit of {limit_w:g} W")
            return
        self._power.apply(cap_w)
        self._cap_w = cap_w
        if self._power.cap_w is None:
            self._fail(attempt, self._power.message)

    def _measure(self, gang: Gang, attempt: Attempt, reading: NodeMeasurement) -> None:
        status = attempt.status
        if reading.energy_wh is None:
            self._fail(attempt, "no meter reads the energy of this node")
        elif time.monotonic() > self._ends_s:
            self._fail(attempt, f"no reports of the trainer for {gang.probe_s:.0f} s")
        elif status is None or min(status.at, reading.at) < self._measures_at:
            return
        elif self._first is None:
            self._first = status, reading
        else:
            began, before = self._first
            seconds, metered_s = status.at - began.at, reading.at - before.at
            if min(seconds, metered_s) < gang.probe_s:
                return
            used_wh = reading.energy_wh - (before.energy_wh or 0.0)
            self.report = PowerProbeReport(
                generation=gang.generation,
                number=gang.probe,
                cap_w=self._cap_w,
                units=status.done_units - began.done_units,
                seconds=seconds,
                metered_w=used_wh * 3600 / metered_s,
                parts=reading.parts,
                gpus=reading.gpus,
                min_w=self._range_w[0],
                limit_w=self._range_w[1],
            )
            self._end(attempt)

    def _fail(self, attempt: Attempt, why: str) -> None:
        gang = attempt.gang
        self.report = PowerProbeReport(gang.generation, gang.probe, message=why)
        self._end(attempt)

    def _end(self, attempt: Attempt) -> None:
        """Remove the limit, unless another one has replaced it."""
        probed, self._gang = self._gang is not None, None
        if probed and self._cap_w is not None and self._power.asked_w == self._cap_w:
            self._power.apply(None if attempt.trainer is None else attempt.gang.power_cap_w)
