"""The Gate port, which decides whether actions are executed, and the release of nodes."""

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
    """Stands between the engine's actions and the providers."""

    @property
    def is_acting(self) -> bool:
        """Return whether any action is allowed, such as forming gangs and ending drained nodes."""
        ...

    @property
    def is_unattended(self) -> bool:
        """Return whether every action is allowed without an operator's approval."""
        ...

    def permitted(
        self, actions: Sequence[Action], bounds: Mapping[str, LaunchLimits], now: datetime
    ) -> tuple[Action, ...]:
        """Return those of the actions that may be executed now, in their order."""
        ...

    def settle(self, refused: Mapping[Launch, str], now: datetime) -> None:
        """Note that the permitted actions were executed, except for ``refused``: launches, with the
        guard or provider that refused each and why. Postponed ones are in neither."""
        ...

    def halt(self) -> GuardViolation | None:
        """Return why nothing may be launched at this instant, or None."""
        ...


class EnforcingGate:
    """Permits every action."""

    is_acting = True
    is_unattended = True

    def permitted(
        self,
        actions: Sequence[Action],
        bounds: Mapping[str, LaunchLimits],  # noqa: ARG002 - not needed to permit everything
        now: datetime,  # noqa: ARG002
    ) -> tuple[Action, ...]:
        """Return all of the actions."""
        return tuple(actions)

    def settle(self, refused: Mapping[Launch, str], now: datetime) -> None:
        """Do nothing: no approval was needed."""

    def halt(self) -> None:
        """Return None: launches are never halted."""
        return


class Releases:
    """Terminates nodes: intent first, then the call; the provider's listing confirms it later."""

    def __init__(self, world: World, journal: Journal) -> None:
        self._world = world
        self._journal = journal

    def release(self, job: str, reasons: Mapping[str, str], now: datetime) -> None:
        """Terminate nodes of the job, for these reasons by node; a repeated call is sent again.

        A request that a provider does not accept is left for the next call.
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
