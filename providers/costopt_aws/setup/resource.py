"""The base of the steps: tags that say whose a resource is, and calls with their IAM actions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from costopt.domain.errors import BadRequestError, ForbiddenError
from costopt.provider.setup import NEEDS_MORE_RIGHTS, SETUP_TAG, ResourceState, SetupStep
from costopt_aws.clients import Clients
from costopt_aws.errors import FORBIDDEN, code_of, map_errors
from costopt_aws.instances import OWNER, PREFIX

MADE_BY = "aws"
GONE = frozenset(
    {
        "404",
        "AWS.SimpleQueueService.NonExistentQueue",
        "InvalidGroup.NotFound",
        "NoSuchBucket",
        "NoSuchEntity",
        "QueueDoesNotExist",
        "ResourceNotFoundException",
    }
)
"""How AWS's services say that there is none."""
EXISTS = frozenset(
    {"BucketAlreadyOwnedByYou", "EntityAlreadyExists", "InvalidPermission.Duplicate"}
)
"""What a retried call gets whose first answer was lost."""


@contextmanager
def suppressed(codes: Collection[str]) -> Iterator[None]:
    """Suppress errors with these codes."""
    try:
        yield
    except BadRequestError as error:
        if code_of(error) not in codes:
            raise


@dataclass(frozen=True, slots=True)
class AwsAccount:
    """The account that setup works in. ``partition`` is "aws" but in GovCloud and China."""

    clients: Clients
    account_id: str
    partition: str
    owner: str

    @property
    def tags(self) -> dict[str, str]:
        """Return the tags of all that setup makes."""
        return {OWNER: self.owner, f"{PREFIX}{SETUP_TAG}": MADE_BY}

    def tag_list(self) -> list[dict[str, str]]:
        """Return them as most APIs take them."""
        return [{"Key": key, "Value": value} for key, value in self.tags.items()]

    def is_ours(self, tags: Mapping[str, str]) -> bool:
        """Return whether setup made what carries these tags, for this owner."""
        return self.tags.items() <= tags.items()


class AwsStep(SetupStep):
    """A resource in ``place``, which is a region, or "global"."""

    service: str

    def __init__(self, account: AwsAccount, name: str, place: str, region: str) -> None:
        self._account = account
        self.name = name
        self.place = place
        self._region = region
        self.is_named = False

    def _call(self, method: str, **arguments: Any) -> Any:
        """Call ``method`` ("create_role"); an error names the IAM action of the same name."""
        action = "".join(word.capitalize() for word in method.split("_"))
        try:
            with map_errors(f"{self.service}:{action}", f"{self.kind} {self.name}"):
                return getattr(self._client(), method)(**arguments)
        except ForbiddenError as error:
            if code_of(error) not in FORBIDDEN:
                raise
            raise ForbiddenError(error.message, hint=NEEDS_MORE_RIGHTS) from error.__cause__

    def _find(self, method: str, **arguments: Any) -> Any | None:
        """Return the answer, None where AWS says that there is no such thing."""
        try:
            return self._call(method, **arguments)
        except BadRequestError as error:
            if code_of(error) not in GONE:
                raise
            return None

    def _create(self, method: str, **arguments: Any) -> None:
        """As ``_call``; what exists already was made by a call whose answer was lost."""
        with suppressed(EXISTS):
            self._call(method, **arguments)

    def _delete(self, method: str, **arguments: Any) -> None:
        """As ``_call``; what is gone needs no deletion."""
        with suppressed(GONE):
            self._call(method, **arguments)

    def _wait(self, state: str, **arguments: Any) -> None:
        """Wait until reads see what was created: IAM's may be behind for seconds."""
        with map_errors(f"{self.service}:Get*", f"{self.kind} {self.name}"):
            self._client().get_waiter(state).wait(**arguments)

    def _client(self) -> Any:
        return self._account.clients.reading(self.service, self._region)

    def _state(self, tags: Mapping[str, str], is_complete: bool) -> ResourceState:
        if not self._account.is_ours(tags):
            return ResourceState.FOREIGN
        return ResourceState.READY if is_complete else ResourceState.INCOMPLETE
