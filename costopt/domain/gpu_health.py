"""The health of a node's GPUs: what its agent reads, what NVIDIA's errors mean, and which action a
policy takes on them.

Xids are the error codes of NVIDIA's driver. ``XIDS`` follows the column "Immediate Action" of the
catalog at https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (Ampere and newer,
read in November 2026): errors for which it says to reset the GPU, or to restart the machine, are of
the hardware and REPLACE; those that it attributes to the user's program are of the APPLICATION; all
others ALERT, also those of codes that are not in the table. Two are stricter than that column: 74,
whose description demands a reset, and 94, whose GPU "it is recommended to reset when convenient".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from costopt.domain.declared import Bounds, Count, Duration, Share, described


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """What an agent has read of its node's GPUs since it began. Unknown is None.

    The GPUs were busy for ``busy_s`` of the ``watched_s`` seconds for which the utilization of all
    of them is known (the mean over GPUs). ``ecc_errors`` counts uncorrected memory errors.
    ``remap_pending``: a GPU waits for a reset to replace faulty memory; ``remap_failed``: it
    cannot. ``lost``: the driver cannot reach a GPU. ``xids`` are the codes that the driver
    reported, each once, in their order.
    """

    watched_s: float = 0.0
    busy_s: float = 0.0
    ecc_errors: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    lost: bool = False
    xids: tuple[int, ...] = ()

    @property
    def faults(self) -> tuple[str, ...]:
        """Return the failures of the hardware, in words: the node should be replaced."""
        found = [xid_text(code) for code in self.xids if _response(code) is XidResponse.REPLACE]
        if self.lost:
            found.append("the driver has lost a GPU")
        if self.ecc_errors:
            found.append(f"{self.ecc_errors} uncorrected memory errors")
        if self.remap_failed:
            found.append("faulty GPU memory cannot be remapped")
        return tuple(found)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what an operator should see, and no reason to replace the node."""
        found = [xid_text(code) for code in self.xids if _response(code) is XidResponse.ALERT]
        if self.remap_pending:
            found.append("faulty GPU memory is remapped at the next reset")
        return tuple(found)


class XidResponse(StrEnum):
    """What an Xid calls for; APPLICATION: nothing, as the job's own program caused it."""

    APPLICATION = "application"
    ALERT = "alert"
    REPLACE = "replace"


_APPLICATION, _ALERT, _REPLACE = XidResponse

XIDS: Mapping[int, tuple[XidResponse, str]] = {
    13: (_APPLICATION, "graphics engine exception, mostly an access out of bounds"),
    31: (_APPLICATION, "GPU memory page fault"),
    43: (_APPLICATION, "GPU stopped processing after a fault of the program"),
    45: (_APPLICATION, "preemptive cleanup of a program that ended"),
    46: (_REPLACE, "GPU stopped processing"),
    48: (_REPLACE, "double-bit ECC error"),
    62: (_REPLACE, "internal micro-controller halt"),
    63: (_ALERT, "GPU memory remapping event"),
    64: (_REPLACE, "GPU memory remapping failure"),
    69: (_APPLICATION, "graphics engine class error"),
    74: (_REPLACE, "NVLink error"),
    79: (_REPLACE, "GPU has fallen off the bus"),
    92: (_ALERT, "high single-bit ECC error rate"),
    94: (_REPLACE, "contained memory error"),
    95: (_REPLACE, "uncontained memory error"),
    109: (_REPLACE, "context switch timeout"),
    110: (_REPLACE, "security fault error"),
    119: (_REPLACE, "GSP RPC timeout"),
    120: (_REPLACE, "GSP error"),
    136: (_REPLACE, "link training failed"),
    137: (_APPLICATION, "NVLink privilege error"),
    140: (_REPLACE, "ECC unrecovered error"),
    143: (_REPLACE, "GPU initialization error"),
    154: (_ALERT, "GPU recovery action changed"),
    156: (_REPLACE, "resource retirement event"),
    157: (_ALERT, "resource retirement failure"),
    158: (_REPLACE, "GPU fatal timeout"),
}
"""Response and meaning by code."""


def xid_text(code: int) -> str:
    """Return the code with its meaning."""
    return f"Xid {code} ({XIDS[code][1] if code in XIDS else 'see the catalog of NVIDIA'})"


def _response(code: int) -> XidResponse:
    return XIDS[code][0] if code in XIDS else XidResponse.ALERT


class HealthIssue(StrEnum):
    """What is wrong with a node. A WARNING is about its GPUs, and never acted on."""

    FAULT = "fault"
    IDLE = "idle"
    SLOW = "slow"
    WARNING = "warning"


class HealthAction(StrEnum):
    """What follows. ``release`` stops the whole job, which saves first; ``replace`` is of a node,
    at the next save, or of a gang that makes no progress, at once."""

    ALERT = "alert"
    RELEASE = "release"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class HealthRules:
    """What is done about idle, slow and faulty nodes."""

    idle: HealthAction = field(
        default=HealthAction.ALERT,
        metadata=described("alert; release: save and stop the job; or replace the node"),
    )
    idle_below: Share = field(
        default=0.05,
        metadata=described(
            "share of GPU utilization, or of the planned progress, below which it is idle"
        ),
    )
    idle_after_s: Duration = field(
        default=1800.0,
        metadata=described("for how much time of training; before it, for twice as long at least"),
    )
    slow: HealthAction = field(
        default=HealthAction.ALERT,
        metadata=described("alert, or replace a node that slows its gang down"),
    )
    slow_beyond: Annotated[float, Bounds(ge=1.05, le=1000)] = field(
        default=1.5,
        metadata=described(
            "times the median time of its gang's nodes for their own part of a step, beyond which "
            "a node is slow"
        ),
    )
    slow_after_s: Duration = field(
        default=900.0, metadata=described("for how much time of training")
    )
    faults: HealthAction = field(
        default=HealthAction.ALERT,
        metadata=described("alert, or replace a node whose GPUs report a hardware error"),
    )
    max_replacements: Count = field(
        default=2, metadata=described("nodes of a job replaced in 24 hours")
    )

    def action(self, issue: HealthIssue) -> HealthAction:
        """Return what the policy says for this issue."""
        match issue:
            case HealthIssue.FAULT:
                return self.faults
            case HealthIssue.IDLE:
                return self.idle
            case HealthIssue.SLOW:
                return self.slow
            case HealthIssue.WARNING:
                return HealthAction.ALERT
