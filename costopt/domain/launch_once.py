"""Launches that are made once, however often they are asked for and whatever answer is lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

from costopt.domain.backoff import CapacityBackoff
from costopt.domain.errors import (
    BadRequestError,
    ForbiddenError,
    ProviderError,
    ProviderUnavailableError,
    ThrottledError,
)
from costopt.domain.fleet import LaunchRequest, Node

FindNodes = Callable[[LaunchRequest, datetime], tuple[Node, ...]]
"""The nodes of a request's key where all of them are known; () where none are or some may come."""

T = TypeVar("T")


class IdempotentLauncher(Generic[T]):
    """Looks for the nodes of a request's key before it asks for them, and after.

    ``order`` puts together what ``start`` asks the cloud with, and asks for no node. Both raise
    ProviderError; ``start`` ProviderUnavailableError where it is not known what came of it.

    A request is in doubt from an answer that was lost until its nodes are found or the cloud
    refuses it: meanwhile it is asked for again at once, under its key.
    """

    def __init__(
        self,
        find: FindNodes,
        order: Callable[[LaunchRequest, datetime], T],
        start: Callable[[T, datetime], None],
        backoff: CapacityBackoff,
    ) -> None:
        self._find = find
        self._order = order
        self._start = start
        self._backoff = backoff
        self._in_doubt: set[str] = set()

    def launch(self, request: LaunchRequest, now: datetime) -> tuple[Node, ...]:
        """The nodes of this key, launched now or before.

        Raises ProviderError; ProviderUnavailableError as long as it is not known whether the nodes
        exist.
        """
        if request.nodes < 1:
            raise BadRequestError(f"{request.pool}: a launch of {request.nodes} nodes")
        try:
            nodes = self._find(request, now) or self._launched(request, now)
        except ProviderError as error:
            if request.key in self._in_doubt:
                raise ProviderUnavailableError(error.message, hint=error.hint) from error
            raise
        self._in_doubt.discard(request.key)
        return tuple(sorted(nodes, key=lambda node: node.node_id))

    def _launched(self, request: LaunchRequest, now: datetime) -> tuple[Node, ...]:
        self._ask(request, now)
        self._in_doubt.add(request.key)
        nodes = self._find(request, now)
        if not nodes:
            raise ProviderUnavailableError(
                f"{request.pool}: the nodes of launch {request.key} are made and not visible yet"
            )
        return nodes

    def _ask(self, request: LaunchRequest, now: datetime) -> None:
        if request.key not in self._in_doubt:
            self._backoff.check(request, now)
        order = self._order(request, now)
        try:
            self._start(order, now)
        except ProviderUnavailableError:
            self._in_doubt.add(request.key)
            raise
        except ProviderError as error:
            self._backoff.record_failure(request, error, now)
            # Clouds say these before they look at the key: an earlier call may have gone through.
            if not isinstance(error, (ThrottledError, ForbiddenError)):
                self._in_doubt.discard(request.key)
            raise
        self._backoff.record_success(request)
