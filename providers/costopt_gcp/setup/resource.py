"""The base of the steps: calls of Google's APIs, and what says whose a resource is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from costopt.domain.errors import ForbiddenError, ProviderError
from costopt.provider.setup import NEEDS_MORE_RIGHTS, ResourceState, SetupStep
from costopt_gcp.clients import Clients, WebApi
from costopt_gcp.instances import OWNER, label

MADE_BY = "gcp"
SETUP = "costopt-setup"
NOT_FOUND, CONFLICT = 404, 409


@dataclass(frozen=True, slots=True)
class GcpProject:
    """The project that setup works in."""

    clients: Clients
    owner: str

    @property
    def name(self) -> str:
        """Return its id."""
        return self.clients.project

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of what can have some."""
        return {OWNER: label(self.owner), SETUP: MADE_BY}

    def is_ours(self, marks: Mapping[str, Any]) -> bool:
        """Return whether setup made what has these labels, or this description."""
        return self.labels.items() <= marks.items()


def description(project: GcpProject) -> str:
    """Return the description of what can have no labels."""
    return "; ".join(f"{key}={value}" for key, value in sorted(project.labels.items()))


def marks(text: str) -> dict[str, str]:
    """The inverse of ``description``; nothing of another's text."""
    pairs = (part.partition("=") for part in text.split("; "))
    return {key: value for key, _, value in pairs if value}


class GcpStep(SetupStep):
    """A resource that one of Google's APIs holds at ``path``."""

    host: str
    collection: str
    """As in the names of permissions, such as "iam.serviceAccounts"."""

    def __init__(self, project: GcpProject, name: str, place: str = "global") -> None:
        self._project = project
        self.name = name
        self.place = place
        self.is_named = False
        self._api = WebApi(project.clients, self.host)

    def _ask(
        self, verb: str, method: str, path: str, content: object = None, **query: object
    ) -> Mapping[str, Any]:
        permission = f"{self.collection}.{verb}"
        try:
            return self._api.ask(
                permission, f"{self.kind} {self.name}", method, path, content, query or None
            )
        except ForbiddenError as error:
            if error.__cause__ is None or not error.hint or "grant " not in error.hint:
                raise
            raise ForbiddenError(error.message, hint=NEEDS_MORE_RIGHTS) from error.__cause__

    def _find(self, path: str, **query: object) -> Mapping[str, Any] | None:
        """Return what is there, None where there is nothing."""
        try:
            return self._ask("get", "GET", path, **query)
        except ProviderError as error:
            if status_of(error) != NOT_FOUND:
                raise
            return None

    def _create(self, path: str, content: object, **query: object) -> None:
        """Create it; what exists was made by a call whose answer was lost."""
        with ignored(CONFLICT):
            self._ask("create", "POST", path, content, **query)

    def _delete(self, path: str, **query: object) -> None:
        """Delete it; what is gone needs no deletion."""
        with ignored(NOT_FOUND):
            self._ask("delete", "DELETE", path, **query)

    def _state(self, found: Mapping[str, Any], is_complete: bool) -> ResourceState:
        if not self._project.is_ours(found):
            return ResourceState.FOREIGN
        return ResourceState.READY if is_complete else ResourceState.INCOMPLETE


@contextmanager
def ignored(status: int) -> Iterator[None]:
    """Suppress an answer with this HTTP status."""
    try:
        yield
    except ProviderError as error:
        if status_of(error) != status:
            raise


def status_of(error: ProviderError) -> int:
    """Return the HTTP status that Google answered with, 0 without an answer."""
    return int(getattr(error.__cause__, "code", 0) or 0)
