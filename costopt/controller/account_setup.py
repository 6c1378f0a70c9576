"""Creates and removes what an account needs, and the account file that names it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costopt.domain.errors import CostoptError, SpecError
from costopt.provider.setup import AccountSetup, ResourceState, SetupStep
from costopt.store.atomic_file import write_if_absent


@dataclass(frozen=True, slots=True)
class FoundStep:
    """A step, and what the account held when it was asked."""

    step: SetupStep
    state: ResourceState

    @property
    def is_used(self) -> bool:
        """Whether the account file names it and setup did not make it: it stays as it is."""
        return self.state is ResourceState.FOREIGN and self.step.is_named


def look(setup: AccountSetup) -> tuple[FoundStep, ...]:
    """Return what there is of each resource, in order. Raise ProviderError."""
    return tuple(FoundStep(step, step.state()) for step in setup.steps)


def raise_if_foreign(found: Sequence[FoundStep]) -> None:
    """Raise CostoptError where a name is taken by something that setup did not make."""
    foreign = [f for f in found if f.state is ResourceState.FOREIGN and not f.is_used]
    if foreign:
        names = ", ".join(f"{each.step.kind} {each.step.name}" for each in foreign)
        raise CostoptError(
            f"setup did not make what has these names already: {names}; nothing was changed",
            hint="delete or rename it, or choose another owner: in the account file, whose names "
            "begin all others; what the account file itself names is used as it is",
            code="foreign",
        )


def create(found: Sequence[FoundStep]) -> Iterator[FoundStep]:
    """Create what is missing and complete what is not as it should be; yield each when it is done.

    Raise ProviderError; what was created before stays, and is found the next time.
    """
    for each in found:
        if each.state in (ResourceState.MISSING, ResourceState.INCOMPLETE):
            each.step.create()
        yield each


def raise_if_in_use(found: Sequence[FoundStep], nodes: Sequence[str], *, lose: bool) -> None:
    """Raise CostoptError where nodes live, or something is stored and is not to be lost."""
    if nodes:
        shown = ", ".join(nodes[:6])
        raise CostoptError(
            f"{len(nodes)} nodes still run: {shown}; nothing was removed",
            hint="`costopt stop --all` saves their jobs and releases them",
            code="in_use",
        )
    for each in found:
        if lose or each.state not in (ResourceState.READY, ResourceState.INCOMPLETE):
            continue
        contents = each.step.contents()
        if contents:
            raise CostoptError(
                f"{each.step.kind} {each.step.name} holds {contents}, checkpoints perhaps; "
                "nothing was removed",
                hint="copy what you want to keep, then add --delete-checkpoints",
                code="in_use",
            )


def remove(found: Sequence[FoundStep]) -> Iterator[FoundStep]:
    """Remove what setup made, the last first; yield each when it is done. Raise ProviderError."""
    for each in reversed(found):
        if each.state in (ResourceState.READY, ResourceState.INCOMPLETE):
            each.step.remove()
        yield each


@dataclass(frozen=True, slots=True)
class AccountFileDraft:
    """The account file that names an owner's resources with one provider."""

    path: Path
    provider: str
    owner: str
    store: str
    options: Mapping[str, object]

    def text(self) -> str:
        """Return the file's text."""
        import yaml

        written, keys = f"costopt setup {self.provider}", "costopt schema account"
        head = f"# Written by `{written}`; `{keys}` has every key.\n"
        return head + str(yaml.safe_dump(self._document(), sort_keys=False))

    def to_add(self) -> str:
        """Return in YAML what the file lacks or has otherwise, or "". Raise SpecError."""
        import yaml

        lacking = _lacking(_read(self.path), self._document())
        return str(yaml.safe_dump(lacking, sort_keys=False)) if lacking else ""

    def write(self) -> None:
        """Write the file; one that exists stays. Raise SpecError where it cannot be written."""
        try:
            write_if_absent(self.path, self.text().encode())
        except OSError as error:
            raise SpecError(
                f"{self.path} cannot be written: {error.strerror or error}",
                hint="the account is set up: name another file with --account, and run it again",
                code="unwritable",
                subject=str(self.path),
            ) from error

    def is_only_ours(self) -> bool:
        """Return whether the file holds nothing but what setup writes. Raise SpecError."""
        found = _read(self.path)
        providers = found.get("providers")
        if not isinstance(providers, dict) or set(providers) != {self.provider}:
            return False
        options = providers[self.provider]
        return (
            set(found) == set(self._document())
            and isinstance(options, dict)
            and set(options) <= self.options.keys()
        )

    def _document(self) -> dict[str, Any]:
        options = {key: value for key, value in self.options.items() if value not in ({}, [])}
        return {
            "kind": "account",
            "version": 1,
            "owner": self.owner,
            "store": self.store,
            "providers": {self.provider: options},
        }


def _read(path: Path) -> dict[str, Any]:
    from costopt.spec.yaml_document import read_document

    return dict(read_document(str(path)).values)


def _lacking(found: Any, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of ``wanted`` that ``found`` does not hold."""
    lacking: dict[str, Any] = {}
    for key, value in wanted.items():
        there = found.get(key) if isinstance(found, dict) else None
        if isinstance(value, dict):
            inner = _lacking(there, value)
            if inner:
                lacking[key] = inner
        elif there != value:
            lacking[key] = value
    return lacking
