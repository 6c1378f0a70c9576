"""What trainers and the membership say to each other: one JSON object a line, over TCP.

Where the membership has a key, both prove first that they know its secret
(costopt.checkpoint.replicas.wire). A trainer opens with Hello and goes on with Beat (every
BEAT_S), Ready and Bye; the membership answers with Formed, Over and Waiting. An empty connection
closed by either side ends the membership of that trainer.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from costopt.checkpoint.replicas.wire import GangKey
from costopt.protocol.messages import decode_message
from costopt.store.atomic_file import replace_nondurable

HEARTBEAT_INTERVAL_S = 0.25
HEARTBEAT_TIMEOUT_S = 1.2


@dataclass(frozen=True, slots=True)
class TrainerProgress:
    """How far a trainer is: ``step`` steps done, None where it holds no state; ``generation`` is
    the last that it trained in, 0 for none."""

    generation: int = 0
    step: int | None = None


@dataclass(frozen=True, slots=True)
class JoinMessage:
    """A trainer asks to be a member.

    ``store`` ("host:port") is the store that its group would meet at if it became rank 0. No gang
    is larger than ``most``. A first gang does not wait once ``expected`` have come. ``conditions``
    are what bit-equality depends on, as "name=value" texts. ``generation`` is the newest gang that
    it was told of, which ``standing`` follows only once it has that gang's state, and ``gang`` who
    is in it, where it goes on there and only its connection is new.
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

    @property
    def ready(self) -> bool:
        """Whether it waits for a gang."""
        return not self.gang


@dataclass(frozen=True, slots=True)
class HeartbeatMessage:
    """I am alive, and this far."""

    wire_kind = "beat"

    standing: TrainerProgress


@dataclass(frozen=True, slots=True)
class ReadyMessage:
    """I have left my gang at ``standing`` and wait for the next one. ``failed``: it broke, rather
    than that all its members agreed to part after this step."""

    wire_kind = "ready"

    standing: TrainerProgress
    failed: bool


@dataclass(frozen=True, slots=True)
class LeaveMessage:
    """I leave for good, as the others know."""

    wire_kind = "bye"


@dataclass(frozen=True, slots=True)
class GangFormedMessage:
    """The gang of ``generation``: names by rank.

    ``source`` is the rank whose state counts, None where none has any; ``aligned`` says that all
    have that same state. ``store`` is where the group meets; ``conditions`` are those of every
    member, by rank.
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
    """``generation`` can end no step any more: leave it and say Ready."""

    wire_kind = "over"

    generation: int
    why: str


@dataclass(frozen=True, slots=True)
class JoinPendingMessage:
    """Someone wants to join: agree with the others on a step to part after."""

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


def encode(letter: FromTrainer | ToTrainer) -> bytes:
    """One line."""
    return json.dumps({"kind": letter.wire_kind, **asdict(letter)}).encode() + b"\n"


def decode(line: bytes) -> Any:
    """The inverse; raises ValueError where the line is no letter."""
    try:
        fields = json.loads(line)
        kind = MESSAGE_KINDS[fields.pop("kind")]
        for name in ("conditions", "members", "gang"):
            if name in fields:
                fields[name] = _tuples(fields[name])
        if "standing" in fields:
            fields["standing"] = decode_message(TrainerProgress, fields["standing"])
        letter = decode_message(kind, fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{line[:80]!r} is no letter: {error}") from error
    if letter is None:
        raise ValueError(f"{line[:80]!r} is no letter")
    return letter


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class MembershipAddress:
    """``place`` is "host:port". Without ``key`` the membership takes anybody who reaches it."""

    place: str
    key: GangKey | None = None

    def write(self, path: Path) -> None:
        """Replace the file, which only this user may read. Raises OSError."""
        replace_nondurable(path, json.dumps(asdict(self)).encode(), private=True)

    @classmethod
    def read(cls, told: str) -> MembershipAddress:
        """From COSTOPT_MEMBERSHIP: "host:port", or "file:///path" of what ``write`` wrote.

        Raises OSError where the file is missing, ValueError where it is nonsense.
        """
        parts = urlsplit(told)
        if parts.scheme != "file":
            return cls(told)
        try:
            fields = json.loads(Path(unquote(parts.path)).read_bytes())
            key = fields["key"]
            return cls(fields["place"], None if key is None else GangKey(**key))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{told} holds no address of a membership: {error}") from error
