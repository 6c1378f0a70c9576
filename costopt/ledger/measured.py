"""What nodes have measured of themselves, and what they were told."""

from __future__ import annotations

from costopt.domain.events import (
    CheckpointIntervalChanged,
    GuaranteeChanged,
    InterruptionExpected,
    NodeMeasured,
)


class MeasurementAccount:
    """The newest word on each matter: measurements and warnings by node, the save interval,
    how exact the result is ("" before a trainer said so)."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeMeasured] = {}
        self.expected: dict[str, str] = {}
        self.interval: CheckpointIntervalChanged | None = None
        self.guarantee = ""

    def measure(self, event: NodeMeasured) -> None:
        """A node's totals."""
        self.nodes[event.node_id] = event

    def change_interval(self, event: CheckpointIntervalChanged) -> None:
        """How often the trainers save from here on."""
        self.interval = event

    def change_guarantee(self, event: GuaranteeChanged) -> None:
        """How exact the result is from here on."""
        self.guarantee = event.guarantee

    def record_interruption_warning(self, event: InterruptionExpected) -> None:
        """What the provider says of a node short of a notice; "" takes it back."""
        self.expected[event.node_id] = event.message


class EnergyMeter:
    """Stretches of time for which a node's energy was measured: micro-watt-hours at its plug."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: dict[int, tuple[int, int]] = {}

    def set(self, from_ms: int, until_ms: int, uwh: int) -> None:
        """A later total from the same instant replaces the one before; stretches do not overlap."""
        earlier = [end for start, (end, _) in self._stretches.items() if start < from_ms]
        from_ms = max(from_ms, *earlier) if earlier else from_ms
        if until_ms > from_ms:
            self._stretches[from_ms] = until_ms, uwh

    def stretches(self) -> tuple[tuple[int, int, int], ...]:
        """(from, until, micro-watt-hours), ascending."""
        if not self._stretches:
            return ()
        return tuple((start, end, uwh) for start, (end, uwh) in sorted(self._stretches.items()))
