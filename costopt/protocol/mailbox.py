"""The mailbox: messages between a job's controller and its agents, over an object store.

jobs/<job>/gang.json                        Gang                controller → agents
jobs/<job>/rendezvous/<generation>.json     Rendezvous          rank 0's agent → agents
jobs/<job>/membership.json                  MembershipEndpoint  a member's agent → agents
jobs/<job>/nodes/<node>/heartbeat.json      Heartbeat           agent → controller, agents
jobs/<job>/nodes/<node>/drain               (empty)             controller → agent
jobs/<job>/checkpoints/<name>.json          SavedCheckpoint     rank 0's agent → controller
jobs/<job>/refused/<name>.json              RejectedCheckpoint  agent → controller
jobs/<job>/failures/<generation>.json       CommandFailure      agent → controller

Beside them ``jobs/<job>/logs/`` holds what trainers print (``costopt.protocol.node_logs``).

Every message carries a schema version. A message that is missing, torn, malformed or of another
version reads as None: its sender writes again, or a newer version is in use. All methods raise
StoreError, also for a message larger than any of ours: a job's own command may write here too.
``MessageReader`` reads large numbers of messages a batch at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from costopt.domain.errors import StoreError
from costopt.domain.gpu_health import GpuHealth
from costopt.domain.object_store import ObjectStore
from costopt.domain.text import encodable_text, untrusted_text
from costopt.protocol.codec import decode_message, encode_message, parse_fields
from costopt.protocol.messages import (
    CacheReport,
    CommandFailure,
    Gang,
    Heartbeat,
    NodeMeasurement,
    PowerProbeReport,
    Rendezvous,
)
from costopt.protocol.trainer_files import RejectedCheckpoint, SavedCheckpoint

T = TypeVar("T")

HEADER = {"schema": 1}
MAX_GANG_BYTES = 8 << 20
"""A gang names the job's command and environment, of a job file of at most 2 MiB."""
MAX_MESSAGE_BYTES = 64 << 10
MAX_MESSAGES = 5_000
"""Read per kind, the newest by name: a month of checkpoints, one every ten minutes."""
MAX_KEYS = 100_000


@dataclass(frozen=True, slots=True)
class MembershipEndpoint:
    """Which node serves the membership of an elastic gang, and at which "host:port"."""

    node_id: str
    address: str


Message = (
    Gang
    | Rendezvous
    | MembershipEndpoint
    | Heartbeat
    | SavedCheckpoint
    | RejectedCheckpoint
    | CommandFailure
)


class Mailbox:
    """The messages of one job.

    With ``once``, a message is read only once and the backlog of its kind in batches; without it,
    everything is read each time.
    """

    def __init__(self, store: ObjectStore, job: str, once: MessageReader | None = None) -> None:
        self.store = store
        self._once = once
        self.job = job
        self.prefix = f"jobs/{job}"

    def post_gang(self, gang: Gang) -> None:
        """Replace the gang; agents that it names start, the others stop."""
        self.store.put(f"{self.prefix}/gang.json", _encode(gang))

    def gang(self) -> Gang | None:
        """Return the newest gang, None before the first."""
        # Its command may be longer than any other text, and must be exact.
        fields = self._fields("gang.json", MAX_GANG_BYTES, encodable_text)
        return decode_message(Gang, fields)

    def post_rendezvous(self, rendezvous: Rendezvous) -> None:
        """Publish where the members of the gang meet."""
        key = f"{self.prefix}/rendezvous/{rendezvous.generation:09d}.json"
        self.store.put(key, _encode(rendezvous))

    def rendezvous(self, generation: int) -> Rendezvous | None:
        """Return where the gang of this generation meets, None until rank 0 has posted it."""
        return decode_message(Rendezvous, self._fields(f"rendezvous/{generation:09d}.json"))

    def post_membership(self, place: MembershipEndpoint) -> None:
        """Publish where the members' trainers form gangs among themselves."""
        self.store.put(f"{self.prefix}/membership.json", _encode(place))

    def membership(self) -> MembershipEndpoint | None:
        """Return where the trainers form gangs, None until a member's agent has posted it."""
        return decode_message(MembershipEndpoint, self._fields("membership.json"))

    def post_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Replace the node's heartbeat."""
        key = f"{self.prefix}/nodes/{heartbeat.node_id}/heartbeat.json"
        self.store.put(key, _encode(heartbeat))

    def heartbeat(self, node_id: str) -> Heartbeat | None:
        """Return the node's newest heartbeat, None before the first."""
        fields = self._fields(f"nodes/{node_id}/heartbeat.json")
        if fields is None:
            return None
        for name, kind in _PARTS_OF_HEARTBEATS.items():
            fields[name] = decode_message(kind, fields.get(name))
        return decode_message(Heartbeat, fields)

    def request_drain(self, node_id: str) -> None:
        """Ask the node to save and stop. Idempotent."""
        self.store.put_if_absent(f"{self.prefix}/nodes/{node_id}/drain", b"{}\n")

    def is_drain_requested(self, node_id: str) -> bool:
        """Whether the node has been asked to save and stop."""
        return self.store.get(f"{self.prefix}/nodes/{node_id}/drain") is not None

    def draining(self) -> tuple[str, ...]:
        """Return the nodes that have been asked to save and stop."""
        keys = self._keys("nodes")
        return tuple(key.split("/")[-2] for key in keys if key.endswith("/drain"))

    def cancel_drain(self, node_id: str) -> None:
        """Withdraw the drain: the node is to train again."""
        self.store.delete(f"{self.prefix}/nodes/{node_id}/drain")

    def post_checkpoint(self, checkpoint: SavedCheckpoint) -> None:
        """Report a durable checkpoint. Idempotent."""
        self.store.put_if_absent(self._checkpoint_key(checkpoint.name), _encode(checkpoint))

    def checkpoints(self) -> tuple[SavedCheckpoint, ...]:
        """Return every durable checkpoint that was reported, in order of name."""
        return self._all(SavedCheckpoint, "checkpoints")

    def post_rejected_checkpoint(self, refused: RejectedCheckpoint) -> None:
        """Report a checkpoint that was rejected. Idempotent."""
        self.store.put_if_absent(f"{self.prefix}/refused/{refused.name}.json", _encode(refused))

    def rejected_checkpoints(self) -> tuple[RejectedCheckpoint, ...]:
        """Return every checkpoint that was rejected, in order of name."""
        return self._all(RejectedCheckpoint, "refused")

    def checkpoint_keys(self) -> frozenset[str]:
        """Return the keys of the checkpoint reports stored now, without reading them."""
        return frozenset(self._keys("checkpoints"))

    def saved_units(self, among: frozenset[str] | None = None) -> float:
        """Return the work in the newest checkpoint that was not rejected; 0 if there is none.

        With ``among``, only reports at these keys count.
        """
        refused = {message.name for message in self.rejected_checkpoints()}
        saved = [c for c in self.checkpoints() if c.name not in refused]
        there = (c for c in saved if among is None or self._checkpoint_key(c.name) in among)
        return max((c.units for c in there), default=0.0)

    def post_failure(self, failure: CommandFailure) -> None:
        """Report that the command itself failed; the first report of a generation counts."""
        key = f"{self.prefix}/failures/{failure.generation:09d}.json"
        self.store.put_if_absent(key, _encode(failure))

    def failures(self) -> tuple[CommandFailure, ...]:
        """Return every failure of the command, by generation."""
        return self._all(CommandFailure, "failures")

    def forget_failures(self) -> None:
        """Delete the reports of failures: their cause has been fixed."""
        for key in self._keys("failures"):
            self.store.delete(key)

    def _all(self, kind: Callable[..., T], folder: str) -> tuple[T, ...]:
        def read(key: str) -> T | None:
            return decode_message(kind, self._fields(key.removeprefix(f"{self.prefix}/")))

        newest = self._keys(folder)[-MAX_MESSAGES:]
        once = self._once
        messages = map(read, newest) if once is None else once.new_messages(folder, newest, read)
        return tuple(message for message in messages if message is not None)

    def _checkpoint_key(self, name: str) -> str:
        return f"{self.prefix}/checkpoints/{name}.json"

    def _keys(self, folder: str) -> Sequence[str]:
        keys = self.store.keys(f"{self.prefix}/{folder}/", most=MAX_KEYS + 1)
        if len(keys) > MAX_KEYS:
            raise StoreError(
                f"{self.prefix}/{folder}/ holds more than {MAX_KEYS:,} messages",
                hint="check what the job's command writes there, and remove it",
                code="too_many_letters",
            )
        return keys

    def _fields(
        self,
        name: str,
        max_bytes: int = MAX_MESSAGE_BYTES,
        clean: Callable[[str], str] = untrusted_text,
    ) -> dict[str, Any] | None:
        data = self.store.get(f"{self.prefix}/{name}", max_bytes)
        return parse_fields(data, clean, HEADER)


def _encode(message: Message) -> bytes:
    return encode_message(message, HEADER)


_PARTS_OF_HEARTBEATS: Mapping[str, Callable[..., object]] = {
    "meters": NodeMeasurement,
    "gpu_health": GpuHealth,
    "probe": PowerProbeReport,
    "cache": CacheReport,
}
"""A node whose agent does not send one of these as it should is alive regardless: it is unknown."""


MAX_BATCH = 500
"""The limit per kind and read: a job that writes thousands does not delay the ticks of the others,
and one that saved every ten minutes while no controller ran for three days is read at once."""


log = logging.getLogger("costopt.agent.letters")


class MessageReader:
    """The messages of one job that have been read, by folder and key.

    Of new messages the last by name are read first, so that the newest is known at once; the others
    are read by later calls.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._read: dict[str, dict[str, Any]] = {}
        self._warned = False

    def new_messages(self, folder: str, keys: Sequence[str], read: Callable[[str], T]) -> list[T]:
        """Return those at ``keys``, all in ``folder``, that have been read so far, in the same
        order.
        """
        before = self._read.get(folder, {})
        known = {key: before[key] for key in keys if key in before}
        new = [key for key in keys if key not in before]
        known.update({key: read(key) for key in new[-MAX_BATCH:]})
        self._read[folder] = known
        self._warn_unread(folder, len(new) - MAX_BATCH)
        return [known[key] for key in keys if key in known]

    def _warn_unread(self, folder: str, unread: int) -> None:
        """Once."""
        if unread > 0 and not self._warned:
            self._warned = True
            log.warning(
                "job %s has %d unread messages in %s; the next ticks read them, %d at a time",
                self._job, unread, folder, MAX_BATCH,
            )  # fmt: skip
