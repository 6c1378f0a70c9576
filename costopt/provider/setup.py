"""What an account needs before it can run jobs, as steps that create it and remove it again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from costopt.provider.tags import short_digest

SETUP_TAG = "setup"
"""Beside the owner's tag, it marks what ``costopt setup`` made: nothing else is ever removed."""

MAX_PREFIX, DIGITS = 23, 8
NEEDS_MORE_RIGHTS = (
    "setting up an account needs more rights than running jobs in it: have them allowed, or let "
    "an administrator run this; run again, it goes on where it stopped"
)
"""The hint of an error of a step that lacks a permission."""


class ResourceState(StrEnum):
    """What an account holds under a resource's name."""

    MISSING = "missing"
    INCOMPLETE = "incomplete"
    """Made by setup for this owner, with other settings than it should have."""
    READY = "ready"
    FOREIGN = "foreign"
    """Not made by setup for this owner."""


class SetupStep(ABC):
    """One resource. Every method raises ProviderError.

    A process may be killed within ``create`` and ``remove``: both go on where they stopped.
    ``is_named``: the account file itself names the resource, which is then used as it is where
    setup did not make it.
    """

    kind: str
    name: str
    place: str
    is_named: bool

    @abstractmethod
    def state(self) -> ResourceState:
        """Return what the account holds now."""

    @abstractmethod
    def create(self) -> None:
        """Create the resource, or give it the settings that it lacks; never for a FOREIGN one."""

    @abstractmethod
    def remove(self) -> None:
        """Delete the resource with all that it holds; a missing one is not an error."""

    def policy(self) -> Mapping[str, object] | None:
        """Return the permissions that it grants, in the provider's format; None if it grants none.

        What they name of resources that are still missing stands as a wildcard.
        """
        return None

    def contents(self) -> str:
        """Return what would be lost with it, in words; "" if it holds nothing."""
        return ""


@dataclass(frozen=True, slots=True)
class NamePrefix:
    """How the names of an owner's resources begin: lower case, digits and hyphens.

    At most 23 characters, so that each fits into the limits of all names: 30 for an account of
    Google Cloud, 63 for a bucket. Two owners whose names differ in other characters alone share a
    prefix, and the tags tell their resources apart.
    """

    owner: str

    def __str__(self) -> str:
        plain = "".join(c if c.isalnum() else "-" for c in self.owner.lower()).strip("-")
        whole = plain if plain.startswith("costopt") else f"costopt-{plain}"
        if len(whole) <= MAX_PREFIX:
            return whole
        return f"{whole[: MAX_PREFIX - DIGITS - 1].rstrip('-')}-{short_digest(self.owner, DIGITS)}"


class AccountSetup(ABC):
    """The resources of one owner in an account, and how an account file names them."""

    @property
    @abstractmethod
    def steps(self) -> Sequence[SetupStep]:
        """In the order in which they are created; each may need those before it."""

    @property
    @abstractmethod
    def store(self) -> str:
        """The URI of the store, for the account file."""

    @abstractmethod
    def options(self) -> Mapping[str, object]:
        """Return the provider's options for the account file. Raise ProviderError.

        What is still missing is left out.
        """


def covers(found: object, wanted: object) -> bool:
    """Return whether ``found`` has all of ``wanted``.

    Clouds add defaults to their answers, and some write numbers as texts.
    """
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            covers(found.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(covers(*pair) for pair in zip(found, wanted, strict=True))
        )
    return str(found) == str(wanted)
