"""The facts that the ledger records. ``at`` is when the fact was recorded; all times are UTC.

Money is integer micro-dollars, power watts. Cost, energy, progress and lost work are folds over
these events, so an event carries every figure that its fold needs.
"""

from __future__ import annotations

from costopt.domain.events.checkpoint import (
    CheckpointCommitted,
    CheckpointIntervalChanged,
    CheckpointRefused,
    DataMoved,
)
from costopt.domain.events.control import (
    ActionProposed,
    GuardTripped,
    LaunchesAllowed,
    LaunchesHalted,
    ModeChanged,
    SignalStale,
)
from costopt.domain.events.event import Event
from costopt.domain.events.job import (
    DecisionMade,
    JobFailed,
    JobFinished,
    JobSubmitted,
    RunStopped,
)
from costopt.domain.events.node import (
    DrainIntended,
    InterruptionExpected,
    InterruptionNoticed,
    LaunchFailed,
    LaunchIntended,
    NodeBilled,
    NodeEnded,
    NodeLaunched,
    NodeMeasured,
    NodeReturned,
    PowerLimitReported,
    PriceChanged,
    TerminateIntended,
)
from costopt.domain.events.training import (
    GangFormed,
    GuaranteeChanged,
    ProgressReported,
    TrainingStarted,
    TrainingStopped,
    WorkLost,
)

__all__ = [
    "EVENT_TYPES",
    "ActionProposed",
    "CheckpointCommitted",
    "CheckpointIntervalChanged",
    "CheckpointRefused",
    "DataMoved",
    "DecisionMade",
    "DrainIntended",
    "Event",
    "GangFormed",
    "GuaranteeChanged",
    "GuardTripped",
    "InterruptionExpected",
    "InterruptionNoticed",
    "JobFailed",
    "JobFinished",
    "JobSubmitted",
    "LaunchFailed",
    "LaunchIntended",
    "LaunchesAllowed",
    "LaunchesHalted",
    "ModeChanged",
    "NodeBilled",
    "NodeEnded",
    "NodeLaunched",
    "NodeMeasured",
    "NodeReturned",
    "PowerLimitReported",
    "PriceChanged",
    "ProgressReported",
    "RunStopped",
    "SignalStale",
    "TerminateIntended",
    "TrainingStarted",
    "TrainingStopped",
    "WorkLost",
]

EVENT_TYPES: tuple[type[Event], ...] = (
    JobSubmitted,
    DecisionMade,
    LaunchIntended,
    NodeLaunched,
    LaunchFailed,
    PriceChanged,
    GangFormed,
    TrainingStarted,
    TrainingStopped,
    ProgressReported,
    CheckpointCommitted,
    DataMoved,
    CheckpointRefused,
    PowerLimitReported,
    NodeMeasured,
    CheckpointIntervalChanged,
    GuaranteeChanged,
    InterruptionExpected,
    WorkLost,
    InterruptionNoticed,
    DrainIntended,
    TerminateIntended,
    NodeEnded,
    NodeReturned,
    NodeBilled,
    GuardTripped,
    ModeChanged,
    LaunchesHalted,
    LaunchesAllowed,
    ActionProposed,
    SignalStale,
    JobFinished,
    JobFailed,
    RunStopped,
)
