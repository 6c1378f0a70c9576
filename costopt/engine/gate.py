"""Whether what was decided is also done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from costopt.domain.fleet import Action, Launch
from costopt.engine.bounds import LaunchLimits
from costopt.engine.refusal import GuardViolation


class Gate(Protocol):
    """Stands between what the engine would do and the providers."""

    @property
    def is_acting(self) -> bool:
        """Whether anything at all may be done: gangs formed, drained nodes given back."""
        ...

    def permitted(
        self, actions: Sequence[Action], bounds: Mapping[str, LaunchLimits], now: datetime
    ) -> tuple[Action, ...]:
        """Those of the actions that may be done now, in their order."""
        ...

    def settle(self, refused: Mapping[Launch, str], now: datetime) -> None:
        """What was permitted last has been done, but for the launches that were refused: by whom,
        and why. What was put off is in neither."""
        ...

    def halt(self) -> GuardViolation | None:
        """Why nothing may be launched at this instant, or None."""
        ...


class EnforcingGate:
    """All that is decided is done."""

    is_acting = True

    def permitted(
        self,
        actions: Sequence[Action],
        bounds: Mapping[str, LaunchLimits],  # noqa: ARG002 - they are all the same to it
        now: datetime,  # noqa: ARG002
    ) -> tuple[Action, ...]:
        """All of them."""
        return tuple(actions)

    def settle(self, refused: Mapping[Launch, str], now: datetime) -> None:
        """Nobody was asked."""

    def halt(self) -> None:
        """Never."""
        return
