"""The Gate port; releasing nodes.

Whether what was decided is also done.

Gives nodes back to their providers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from costopt.domain.errors import ProviderError
from costopt.domain.events import TerminateIntended
from costopt.domain.fleet import Action, Launch
from costopt.domain.market import Pool
from costopt.engine.guards import LaunchLimits
from costopt.engine.journal import Journal
from costopt.engine.quotas import GuardViolation
from costopt.engine.settings import World


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


class Releases:
    """Intent first, then the call; the provider's listing confirms it later."""

    def __init__(self, world: World, journal: Journal) -> None:
        self._world = world
        self._journal = journal

    def release(self, job: str, reasons: Mapping[str, str], now: datetime) -> None:
        """Give back nodes of the job, for these reasons by node; asked again, the call is repeated.

        What a provider does not take is left for the next time.
        """
        record = self._journal.records[job]
        self._journal.write(
            *(
                TerminateIntended(at=now, job=job, node_id=node_id, reason=reason)
                for node_id, reason in reasons.items()
                if node_id not in record.releasing
            )
        )
        for node_id in reasons:
            self._terminate(node_id, Pool.parse(record.live[node_id].pool))

    def _terminate(self, node_id: str, pool: Pool) -> None:
        try:
            self._world.provider_of(pool).terminate(node_id)
        except ProviderError:
            return
