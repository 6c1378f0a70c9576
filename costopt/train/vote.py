"""What each rank asks for in a step, and what all have agreed on when it is reduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepVote:
    """``stop``: this rank was told to leave. ``save`` counts from rank 0 only. ``part``: someone
    waits to join, so the gang should form anew after this step."""

    stop: bool = False
    save: bool = False
    part: bool = False

    def numbers(self) -> tuple[float, float, float]:
        """As they travel with the gradients."""
        return float(self.stop), float(self.save), float(self.part)


VOTE_NUMBERS = len(StepVote().numbers())


@dataclass(frozen=True, slots=True)
class StepAgreement:
    """The same on every rank. ``stops`` counts who leaves; ``loss`` is the mean over the shards
    where it was observed."""

    stops: int
    save: bool
    part: bool = False
    loss: float | None = None

    @classmethod
    def of(cls, votes: Sequence[Sequence[float]], loss: float | None = None) -> StepAgreement:
        """From every rank's vote in numbers, by rank."""
        stops = sum(vote[0] > 0 for vote in votes)
        return cls(stops, votes[0][1] > 0, any(vote[2] > 0 for vote in votes), loss)
