"""What the job's data cost on their way between regions."""

from __future__ import annotations

from bisect import bisect_left

from costopt.domain.events import DataMoved
from costopt.ledger.meter import to_milliseconds


class TransferAccount:
    """Micro-dollars of every move; those whose price is unknown are remembered as unknown."""

    def __init__(self) -> None:
        self.usd_micros = 0
        self._unknown = False
        self._moves: list[tuple[int, int]] = []

    def move(self, event: DataMoved) -> None:
        """Charge a move at once, when it begins."""
        if event.usd_micros is None:
            self._unknown = True
            return
        self.usd_micros += event.usd_micros
        self._moves.append((to_milliseconds(event.at), event.usd_micros))
        self._moves.sort()

    @property
    def known_usd_micros(self) -> int | None:
        """All moves together, None where the price of one is unknown."""
        return None if self._unknown else self.usd_micros

    @property
    def moves(self) -> tuple[tuple[int, int], ...]:
        """(milliseconds since the epoch, micro-dollars) of each, ascending."""
        return tuple(self._moves)

    def usd_micros_until(self, ms: int) -> int:
        """The moves that began before ``ms``."""
        return sum(micros for _, micros in self._moves[: bisect_left(self._moves, (ms, 0))])
