"""Where a run stands: everything that a checkpoint or a peer must hold for it to go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from costopt.train.conditions import (
    ExactnessGuarantee,
    changed_conditions,
    encode_conditions,
    rank_differences,
)
from costopt.train.group import RankGroup
from costopt.train.state import TrainingState
from costopt.train.transfer import broadcast_state


class RunState:
    """The parts, the position, and what voided bit-equality so far.

    Nothing depends on which process computes what, so rank 0's state is that of all. ``loss`` is
    what was observed in the last step. ``skipped`` steps of data were left out by rollbacks, of
    which there were ``rollbacks``.
    """

    def __init__(
        self,
        parts: TrainingState,
        *,
        group: RankGroup,
        guarantee: ExactnessGuarantee,
        conditions: dict[str, str],
    ) -> None:
        self.step = 0
        self.loss: float | None = None
        self.skipped = 0
        self.rollbacks = 0
        self.guarantee = guarantee
        self._parts, self._group = parts, group
        self._conditions = conditions

    def capture(self) -> dict[str, Any]:
        """The whole state; its tensors may be read until the optimizer steps."""
        return {**self._shared(), "parts": self._parts.snapshot()}

    def load(self, state: Mapping[str, Any], whence: str) -> None:
        """Go on from a checkpoint. Raises CheckpointError where it lacks a part."""
        self._take_shared(state, whence)
        self.guarantee.void(*changed_conditions(state["conditions"], self._conditions))

    def align(self, source: int) -> None:
        """Take over the state of a rank. Collective; raises PeerLostError."""
        own = self._shared() if self._group.rank == source else None
        state = broadcast_state(self._group, own, source)
        if self._group.rank != source:
            self._take_shared(state, "a peer")

    def compare(self, members: Sequence[tuple[str, ...]]) -> None:
        """Void what ranks whose conditions differ cannot hold."""
        self.guarantee.void(*rank_differences(members))

    def check_rank_conditions(self) -> None:
        """As ``compare``, with what each rank of a fixed group is asked for. Collective."""
        own = encode_conditions(self._conditions)
        self.compare([self._group.broadcast(own, rank) for rank in range(self._group.size)])

    def _shared(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "loss": self.loss,
            "parts": self._parts.state_dict(),
            "skipped": self.skipped,
            "rollbacks": self.rollbacks,
            "conditions": self._conditions,
            "voided": list(self.guarantee.voided),
        }

    def _take_shared(self, state: Mapping[str, Any], whence: str) -> None:
        self._parts.load_state_dict(state["parts"], whence)
        self.step = state["step"]
        self.loss = state["loss"]
        self.skipped = state["skipped"]
        self.rollbacks = max(self.rollbacks, state["rollbacks"])
        self.guarantee.void(*state["voided"])
