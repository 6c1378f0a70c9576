"""Where a run stands: everything that a checkpoint or a peer must hold for it to go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from costopt.train.conditions import Guarantee, changes
from costopt.train.group import Group
from costopt.train.state import Parts, Stateful, random_state, restore_random_state
from costopt.train.transfer import transfer


class RunState:
    """The parts, the position, and what voided bit-equality so far.

    With virtual shards (``sharded``) nothing depends on which process computes what, and rank 0's
    state is that of all. Without, each rank's own generators and data position are kept too.
    ``loss`` is what was observed in the last step. ``skipped`` steps of data were left out by
    rollbacks, of which there were ``rollbacks``.
    """

    def __init__(
        self,
        parts: Parts,
        data: Stateful | None,
        *,
        group: Group,
        guarantee: Guarantee,
        conditions: dict[str, str],
        sharded: bool,
    ) -> None:
        self.step = 0
        self.loss: float | None = None
        self.skipped = 0
        self.rollbacks = 0
        self.guarantee = guarantee
        self._parts, self._data = parts, data
        self._group = group
        self._conditions = conditions
        self._sharded = sharded
        self._random: dict[str, Any] | None = None

    def capture(self) -> dict[str, Any]:
        """The whole state on rank 0, an empty dictionary elsewhere. Collective unless sharded.

        Its tensors may be read until the optimizer steps.
        """
        ranks = [] if self._sharded else self._group.gather(self._own())
        if self._group.rank != 0:
            return {}
        return {**self._shared(), "parts": self._parts.snapshot(), "ranks": ranks}

    def take_up(self, state: Mapping[str, Any], whence: str) -> None:
        """Go on from a checkpoint. Raises CheckpointError where it lacks a part."""
        self._take_shared(state, whence)
        if "conditions" in state:
            self.guarantee.void(*changes(state["conditions"], self._conditions))
        if not self._sharded:
            self._take_own(state["ranks"])

    def align(self, source: int) -> None:
        """Take over the state of a rank. Collective; raises PeerLostError."""
        own = self._shared() if self._group.rank == source else None
        state = transfer(self._group, own, source)
        if self._group.rank != source:
            self._take_shared(state, "a peer")

    def begin(self) -> None:
        """Set the generators to where they were: what was drawn since does not count."""
        if self._random is not None:
            restore_random_state(self._random)
            self._random = None

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
        self.loss = state.get("loss")
        self.skipped = state.get("skipped", 0)
        self.rollbacks = max(self.rollbacks, state.get("rollbacks", 0))
        self.guarantee.void(*state.get("voided", ()))

    def _own(self) -> dict[str, Any]:
        own: dict[str, Any] = {"random": random_state()}
        if self._data is not None:
            own["data"] = self._data.state_dict()
        return own

    def _take_own(self, ranks: list[dict[str, Any]]) -> None:
        size, rank = self._group.size, self._group.rank
        if len(ranks) == size:
            own = ranks[rank]
            self._random = own["random"]
        else:
            own = ranks[0] if ranks else {}
            self.guarantee.void(f"{len(ranks)} processes became {size}")
            torch.manual_seed(hash((torch.initial_seed(), self.step, rank)))
        if self._data is not None and "data" in own:
            self._data.load_state_dict(own["data"])
