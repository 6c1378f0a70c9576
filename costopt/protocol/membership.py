"""The protocol between trainers and the membership: one JSON object per line, over TCP.

If the membership has a key, both sides first prove that they know its secret
(costopt.checkpoint.replicas.wire). A trainer opens with Hello and continues with Beat (at each
heartbeat interval), Ready and Bye; the membership sends Formed, Over and Waiting. A connection that
either side closes ends that trainer's membership.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from costopt.checkpoint.replicas.wire import GangKey
from costopt.domain.text import encodable_text
from costopt.protocol.codec import decode_message, encode_message, parse_fields
from costopt.store.atomic_file import replace_nondurable

HEARTBEAT_INTERVAL_S = 0.25
HEARTBEAT_TIMEOUT_S = 1.2


@dataclass(frozen=True, slots=True)
class TrainerProgress:
    """A trainer's progress: ``step`` steps done, None if it holds no state.

    ``generation`` is the last one in which it trained, 0 for none.
    """

    generation: int = 0
    step: int | None = None


@dataclass(frozen=True, slots=True)
class JoinMessage:
    """A trainer asks to become a member.

    ``store`` ("host:port") is the store at which its group would meet if it became rank 0. No gang
    is larger than ``most``. The first gang forms as soon as ``expected`` members have joined.
    ``conditions`` are what bit-equality depends on, as "name=value" texts. ``generation`` is the
    newest gang that was announced to it; ``standing`` refers to that gang only once the trainer has
    its state. ``gang`` lists its members if the trainer continues there and only its connection is
    new. Trainers that share a ``unit`` hold one copy of the model together, ``unit_size`` of them,
    each at a ``position``: they train and are lost together.
    """

    wire_kind = "hello"

    member: str
    store: str
    standing: TrainerProgress
    most: int = 1
    expected: int | None = None
    conditions: tuple[str, ...] = ()
    generation: int = 0
    gang: tuple[str, ...] = ()
    unit: str = ""
    position: int = 0
    unit_size: int = 1

    @property
    def ready(self) -> bool:
        """Whether it waits for a gang."""
        return not self.gang


@dataclass(frozen=True, slots=True)
class HeartbeatMessage:
    """The trainer is alive; with its progress."""

    wire_kind = "beat"

    standing: TrainerProgress


@dataclass(frozen=True, slots=True)
class ReadyMessage:
    """The trainer has left its gang at ``standing`` and waits for the next one.

    ``failed``: the gang broke; otherwise all its members agreed to part after this step.
    """

    wire_kind = "ready"

    standing: TrainerProgress
    failed: bool


@dataclass(frozen=True, slots=True)
class LeaveMessage:
    """The trainer leaves for good; the other members know."""

    wire_kind = "bye"


@dataclass(frozen=True, slots=True)
class GangFormedMessage:
    """The gang of ``generation``: names by rank.

    ``source`` is the rank whose state counts, None if no member has one; ``aligned`` says that all
    have that same state. ``store`` is where the group meets; ``conditions`` are those of every
    member, by rank. The members of a unit follow each other, by position.
    """

    wire_kind = "formed"

    generation: int
    members: tuple[str, ...]
    source: int | None
    aligned: bool
    store: str
    conditions: tuple[tuple[str, ...], ...] = ()
    silent_s: float = HEARTBEAT_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class GangOverMessage:
    """``generation`` can complete no further step: leave it and send Ready.

    ``unit_over``: the receiver's unit has lost a member, so that the receiver cannot go on either.
    """

    wire_kind = "over"

    generation: int
    why: str
    unit_over: bool = False


@dataclass(frozen=True, slots=True)
class JoinPendingMessage:
    """A trainer waits to join: agree with the others on a step after which to part."""

    wire_kind = "waiting"

    why: str


FromTrainer = JoinMessage | HeartbeatMessage | ReadyMessage | LeaveMessage
ToTrainer = GangFormedMessage | GangOverMessage | JoinPendingMessage
MESSAGE_KINDS: dict[str, type[Any]] = {
    kind.wire_kind: kind
    for kind in (
        JoinMessage,
        HeartbeatMessage,
        ReadyMessage,
        LeaveMessage,
        GangFormedMessage,
        GangOverMessage,
        JoinPendingMessage,
    )
}


def encode(message: FromTrainer | ToTrainer) -> bytes:
    """Return the message as one line."""
    return encode_message(message, {"kind": message.wire_kind})


def decode(line: bytes) -> Any:
    """Return the message in a line. Raise ValueError if the line does not hold one."""
    fields = parse_fields(line, encodable_text) or {}
    kind = MESSAGE_KINDS.get(str(fields.pop("kind", "")))
    message = None if kind is None else decode_message(kind, fields)
    if message is None:
        raise ValueError(f"{line[:80]!r} is not a message")
    return message


@dataclass(frozen=True, slots=True)
class MembershipAddress:
    """Where the membership is: ``place`` is "host:port".

    Without ``key`` the membership accepts any client that reaches it.
    """

    place: str
    key: GangKey | None = None

    def write(self, path: Path) -> None:
        """Replace the file, which only this user may read. Raise OSError if that fails."""
        replace_nondurable(path, encode_message(self), private=True)

    @classmethod
    def read(cls, text: str) -> MembershipAddress:
        """Return the address in COSTOPT_MEMBERSHIP: "host:port", or "file:///path" from ``write``.

        Raise OSError if the file is missing, ValueError if its content is malformed.
        """
        parts = urlsplit(text)
        if parts.scheme != "file":
            return cls(text)
        address = decode_message(cls, parse_fields(Path(unquote(parts.path)).read_bytes()))
        if address is None:
            raise ValueError(f"{text} does not contain a membership's address")
        return address
