"""Checksums of what a ledger stores, so that a flipped bit is an error and never a figure.

An event's text ends with the CRC-32 of its number and of the text before, which finds every single
flipped bit. An event whose number does not follow the one before, since numbers were lost, says
which one it follows (``after``). Events that were written before there were checksums have none.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from costopt.database.failures import RESTORE_HINT
from costopt.domain.errors import LedgerError

DAMAGED = "damaged"
_SEAL = re.compile(r'(?:,"after":(\d+))?,"crc32":"([0-9a-f]{8})"}\Z', re.ASCII)


@dataclass(frozen=True, slots=True)
class UnsealedEvent:
    """An event's text, and the number that it follows, None for one without a checksum."""

    text: str
    follows: int | None


def seal(text: str, seq: int, follows: int) -> str:
    """Return the event's text, a JSON object, with its checksum."""
    after = "" if follows == seq - 1 else f',"after":{follows}'
    return f'{text[:-1]}{after},"crc32":"{_checksum(f"{text[:-1]}{after}", seq)}"}}'


def unseal(body: object, seq: int) -> UnsealedEvent:
    """Return the text that was sealed. Raise LedgerError where it or its number has changed."""
    if not isinstance(body, str):
        raise damaged_error("it is not a text")
    found = _SEAL.search(body)
    if found is None:
        return UnsealedEvent(body, None)
    if _checksum(body[: found.start(2) - len(',"crc32":"')], seq) != found[2]:
        raise damaged_error("its checksum is not that of its text and number")
    return UnsealedEvent(
        f"{body[: found.start()]}}}", seq - 1 if found[1] is None else int(found[1])
    )


def seal_fold(body: bytes, *names: object) -> bytes:
    """Return a cached fold's body behind its checksum; ``names`` say what it is the fold of."""
    return _fold_checksum(body, names) + body


def unseal_fold(body: object, *names: object) -> bytes | None:
    """Return the body that was sealed under these names; None where anything has changed."""
    if not isinstance(body, (bytes, memoryview)):
        return None
    checksum, rest = bytes(body[:4]), bytes(body[4:])
    return rest if _fold_checksum(rest, names) == checksum else None


def damaged_error(why: str) -> LedgerError:
    """Return the error of an event that is not what was written."""
    return LedgerError(f"an event is damaged: {why}", hint=RESTORE_HINT, code=DAMAGED)


def _checksum(text: str, seq: int) -> str:
    return f"{zlib.crc32(f'{seq}:{text}'.encode('utf-8', 'surrogatepass')):08x}"


def _fold_checksum(body: bytes, names: tuple[object, ...]) -> bytes:
    return zlib.crc32(body, zlib.crc32(repr(names).encode())).to_bytes(4, "big")
