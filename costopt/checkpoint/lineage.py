"""The lineage: the committed checkpoints that training rests on, and how HEAD moves along it."""

from __future__ import annotations

from collections.abc import Callable

from costopt.checkpoint import repository as head_file
from costopt.checkpoint.manifest import CheckpointName, Manifest
from costopt.checkpoint.repository import CheckpointRepository, Head, checkpoint_errors
from costopt.domain.errors import CheckpointError
from costopt.store.guarantees import ensure_guarantees

MAX_ATTEMPTS = 32
LOST_WRITE = "lost_write"
"""The code of the error of a store that does not hold what it accepted."""


def parse_names(texts: tuple[str, ...]) -> list[CheckpointName]:
    """Return those texts that are names of checkpoints, in the same order."""
    names = (CheckpointName.parse(text) for text in texts)
    return [name for name in names if name is not None]


def current_lineage(place: CheckpointRepository, head: Head | None) -> tuple[str, ...]:
    """Return HEAD's lineage; without HEAD, every checkpoint with a manifest, the newest first."""
    if head is not None:
        return head.line
    return tuple(str(name) for name in place.names() if read_valid_manifest(place, str(name)))


def lineage_from(
    place: CheckpointRepository, line: tuple[str, ...], parent: str
) -> tuple[str, ...]:
    """Return the lineage when training continues from ``parent``: it and its ancestors."""
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
    """Return the manifest of the checkpoint of this name; None if it is not valid."""
    name = CheckpointName.parse(text)
    try:
        return None if name is None else place.manifest(name)
    except ValueError:
        return None


def read_head(place: CheckpointRepository) -> Head | None:
    """Return HEAD; None if it is missing or damaged. Raise CheckpointError if it cannot be read."""
    try:
        return place.head()
    except ValueError:
        return None


def read_newest(place: CheckpointRepository) -> tuple[Head | None, Manifest | None]:
    """Return HEAD, and the manifest of the checkpoint that it names first, if that is valid."""
    head = read_head(place)
    return head, read_valid_manifest(place, head.line[0]) if head and head.line else None


def compare_and_swap_head(
    place: CheckpointRepository, change: Callable[[Head | None], Head]
) -> Head:
    """Replace HEAD by ``change`` of it with compare-and-swap, retried while others change it.

    ``change`` returns its argument to leave HEAD as it is, and may raise. Raise CheckpointError if
    the store refuses, does not guarantee that one writer wins, or lost the write; HEAD is then
    unchanged, or the store's reply was lost and it may have moved.
    """
    with checkpoint_errors():
        ensure_guarantees(place.store)
    for _ in range(MAX_ATTEMPTS):
        with checkpoint_errors():
            tagged = place.store.get_tagged(head_file.KEY)
        found = None if tagged is None else _decoded(tagged.data)
        place.check_identity(found)
        wanted = change(found)
        if wanted is found:
            return wanted
        tag = None if tagged is None else tagged.tag
        try:
            with checkpoint_errors():
                if place.store.replace(head_file.KEY, wanted.encode(), tag):
                    _check_kept(place, None if tagged is None else tagged.data)
                    return wanted
        except CheckpointError:
            if _is_moved(place, wanted):
                return wanted
            raise
    raise CheckpointError(
        f"HEAD in {place.uri} was changed by others {MAX_ATTEMPTS} times in a row",
        hint="let only one process at a time save there",
    )


def _check_kept(place: CheckpointRepository, before: bytes | None) -> None:
    """Raise CheckpointError if HEAD still is what it was before it was replaced."""
    if place.store.get(head_file.KEY) == before:
        raise CheckpointError(
            f"the store accepted a HEAD in {place.uri} and did not store it",
            hint="check the store with `costopt doctor`, or use another one",
            code=LOST_WRITE,
        )


def _is_moved(place: CheckpointRepository, wanted: Head) -> bool:
    """Whether a request that failed took effect after all."""
    try:
        return read_head(place) == wanted
    except CheckpointError:
        return False


def _decoded(data: bytes) -> Head | None:
    try:
        return Head.decode(data)
    except ValueError:
        return None
