"""The line of checkpoints that training stands on, and how HEAD is moved along it."""

from __future__ import annotations

from collections.abc import Callable

from costopt.checkpoint import repository as head_file
from costopt.checkpoint.manifest import CheckpointName, Manifest
from costopt.checkpoint.repository import CheckpointRepository, Head, checkpoint_errors
from costopt.domain.errors import CheckpointError, StoreError

MAX_ATTEMPTS = 32


def parse_names(texts: tuple[str, ...]) -> list[CheckpointName]:
    """Those that are names of checkpoints, in the same order."""
    names = (CheckpointName.parse(text) for text in texts)
    return [name for name in names if name is not None]


def current_lineage(place: CheckpointRepository, head: Head | None) -> tuple[str, ...]:
    """What HEAD says; without it, every checkpoint that has a manifest, the newest first."""
    if head is not None:
        return head.line
    return tuple(str(name) for name in place.names() if read_valid_manifest(place, str(name)))


def lineage_from(
    place: CheckpointRepository, line: tuple[str, ...], parent: str
) -> tuple[str, ...]:
    """What is left of the line when training goes on from ``parent``: it and its own past."""
    if parent in line:
        return line[line.index(parent) :]
    past: list[str] = []
    following: str | None = parent
    while following is not None and following not in past:
        manifest = read_valid_manifest(place, following)
        if manifest is None:
            break
        past.append(following)
        following = manifest.parent
    return tuple(past)


def read_valid_manifest(place: CheckpointRepository, text: str) -> Manifest | None:
    """That of the checkpoint of this name; None where it is not valid."""
    name = CheckpointName.parse(text)
    try:
        return None if name is None else place.manifest(name)
    except ValueError:
        return None


def read_head(place: CheckpointRepository) -> Head | None:
    """HEAD as it is; None where it is missing or damaged. Raises CheckpointError."""
    try:
        return place.head()
    except ValueError:
        return None


def compare_and_swap_head(
    place: CheckpointRepository, change: Callable[[Head | None], Head]
) -> Head:
    """Compare-and-swap HEAD to ``change`` of what it is until nobody comes in between.

    ``change`` returns what it was given to leave it so, and may raise. Raises CheckpointError; HEAD
    is then as it was, or the reply of the store was lost and it may have moved.
    """
    for _ in range(MAX_ATTEMPTS):
        with checkpoint_errors():
            tagged = place.store.get_tagged(head_file.KEY)
        found = None if tagged is None else _decoded(tagged.data)
        wanted = change(found)
        if wanted is found:
            return wanted
        tag = None if tagged is None else tagged.tag
        try:
            if place.store.replace(head_file.KEY, wanted.encode(), tag):
                return wanted
        except StoreError as error:
            if _is_moved(place, wanted):
                return wanted
            raise CheckpointError(
                error.message, hint=error.hint, code=error.code, subject=error.subject
            ) from error
    raise CheckpointError(
        f"HEAD in {place.uri} was changed by others {MAX_ATTEMPTS} times in a row",
        hint="see that one process at a time saves there",
    )


def _is_moved(place: CheckpointRepository, wanted: Head) -> bool:
    """Whether a request that failed took effect all the same."""
    try:
        return read_head(place) == wanted
    except CheckpointError:
        return False


def _decoded(data: bytes) -> Head | None:
    try:
        return Head.decode(data)
    except ValueError:
        return None
