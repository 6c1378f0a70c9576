"""This process as a member of a job's gang: its connection to the membership, in a thread."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from costopt.checkpoint.replicas.wire import authenticate
from costopt.domain.errors import StoreError
from costopt.protocol import membership as protocol

RETRY_S = 0.1
CONNECT_S = 2.0
PATIENCE_S = 120.0
HEARTBEAT_TIMEOUT_MS = 3000
"""Unacknowledged for so long, the membership's machine is gone: without this timeout the connection
would break only after many minutes."""
SUSPENDED_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class UnitPlace:
    """The unit that a process is part of, and its position among the ``size`` of them."""

    name: str
    position: int
    size: int


class MembershipClient:
    """Connects when it is created, and again whenever the connection breaks.

    ``standing`` is this process' progress; the training loop updates it. ``store_at`` opens a store
    for the group to meet at, at an address of this machine, and returns "host:port". A process that
    was suspended for so long that the others remove it treats its gang as over before any message
    says so. Without a membership that answers, training continues; only forming the next gang
    waits, ``patience_s`` at most. Where another process of this one's ``unit`` is lost, this one
    ends: it may wait for the other in a collective that nothing else interrupts.
    """

    def __init__(
        self,
        address: str,
        *,
        store_at: Callable[[str], str],
        most: int,
        expected: int | None = None,
        conditions: tuple[str, ...] = (),
        patience_s: float = PATIENCE_S,
        unit: UnitPlace | None = None,
    ) -> None:
        node = os.environ.get("COSTOPT_NODE") or socket.gethostname()
        self.name = f"{node}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self.standing = protocol.TrainerProgress()
        self._address, self._store_at = address, store_at
        self._join = protocol.JoinMessage(
            self.name, "", protocol.TrainerProgress(), most, expected, conditions
        )
        if unit is not None:
            place: dict[str, Any] = {
                "unit": unit.name,
                "position": unit.position,
                "unit_size": unit.size,
            }
            self._join = replace(self._join, **place)
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._formed: protocol.GangFormedMessage | None = None
        self._ended: dict[int, str] = {}
        self._slept: set[int] = set()
        self._others_wait = False
        self._awaits = True
        self._unseen = False
        self._link: socket.socket | None = None
        self._refusal = ""
        self._host = "127.0.0.1"
        self._left = False
        self._beaten_at = time.monotonic()
        self._connected_at = time.monotonic()
        for target in (self._listen, self._beat):
            threading.Thread(target=target, name="member", daemon=True).start()

    @property
    def host(self) -> str:
        """Return the address of this machine from which the membership was reached."""
        return self._host

    def next_gang(self, *, failed: bool) -> protocol.GangFormedMessage:
        """Wait for the next gang that includes this process. ``failed``: the last one broke.

        Raise StoreError if no membership has answered for ``patience_s``.
        """
        with self._changed:
            if not self._awaits and not self._unseen:
                self._awaits = True
                self._write(protocol.ReadyMessage(self.standing, failed))
            while not self._unseen:
                self._changed.wait(RETRY_S)
                if self._link is None and self._unreachable_s() > self._patience_s:
                    raise StoreError(
                        f"no membership answers at {self._address}: {self._refusal}",
                        hint="start one (python -m costopt.agent.membership_server), or unset "
                        "COSTOPT_MEMBERSHIP to train in a fixed group",
                    )
            self._unseen = False
            assert self._formed is not None
            return self._formed

    def gang_over_reason(self, generation: int) -> str | None:
        """Return why the gang cannot continue, or None. Cheap enough to call in every wait."""
        if self.was_suspended(generation):
            return "this process was suspended"
        return self._ended.get(generation)

    def was_suspended(self, generation: int) -> bool:
        """Whether this process was suspended while in the gang, so that the others may have
        continued without it: what it has computed with them since does not count.
        """
        silent_s = protocol.HEARTBEAT_TIMEOUT_S if self._formed is None else self._formed.silent_s
        if time.monotonic() - self._beaten_at > SUSPENDED_SHARE * silent_s:
            self._slept.add(generation)
        return generation in self._slept

    def others_wait(self) -> bool:
        """Whether a process waits to join the gang."""
        return self._others_wait

    def leave(self) -> None:
        """Announce that this process leaves; the other members know already."""
        with self._changed:
            self._left = True
            self._write(protocol.LeaveMessage())
            self._disconnect()

    def _beat(self) -> None:
        while not self._left:
            with self._changed:
                self._wake()
                self._write(protocol.HeartbeatMessage(self.standing))
            time.sleep(protocol.HEARTBEAT_INTERVAL_S)

    def _wake(self) -> None:
        """Record that this thread runs; if it has not for long, the gang is over for good."""
        formed = self._formed
        if formed is not None:
            self.was_suspended(formed.generation)
        self._beaten_at = time.monotonic()

    def _listen(self) -> None:
        while not self._left:
            try:
                link = self._connect()
            except (OSError, ValueError, KeyError, EOFError) as error:
                self._refusal = str(error)
            else:
                self._read(link)
            time.sleep(RETRY_S)

    def _connect(self) -> socket.socket:
        link = _entered(protocol.MembershipAddress.read(self._address))
        # A heartbeat is small, and must not wait for the one before to be acknowledged.
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sys.platform == "linux":
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        # The thread that reads may wait for ever: a dead peer breaks the connection.
        link.settimeout(None)
        host = link.getsockname()[0]
        store = self._store_at(host)
        with self._changed:
            self._host, self._link = host, link
            self._write(self._greeting(store))
        return link

    def _greeting(self, store: str) -> protocol.JoinMessage:
        formed = self._formed
        return replace(
            self._join,
            store=store,
            standing=self.standing,
            generation=0 if formed is None else formed.generation,
            gang=() if formed is None or self._awaits else formed.members,
        )

    def _read(self, link: socket.socket) -> None:
        with link, link.makefile("rb") as lines, contextlib.suppress(OSError, ValueError):
            for line in lines:
                self._take(protocol.decode(line))
        with self._changed:
            self._connected_at = time.monotonic()
            if self._link is link:
                self._link = None
            self._changed.notify_all()

    def _take(self, message: object) -> None:
        with self._changed:
            if isinstance(message, protocol.GangFormedMessage):
                self._formed, self._unseen = message, True
                self._awaits = self._others_wait = False
            elif isinstance(message, protocol.GangOverMessage):
                if message.unit_over:
                    _end_process(message.why)
                self._ended[message.generation] = message.why
            elif isinstance(message, protocol.JoinPendingMessage):
                self._others_wait = True
            self._changed.notify_all()

    def _write(self, message: protocol.FromTrainer) -> None:
        """A broken connection is detected by the reading thread."""
        if self._link is not None:
            try:
                self._link.sendall(protocol.encode(message))
            except OSError:
                self._disconnect()

    def _disconnect(self) -> None:
        if self._link is not None:
            with contextlib.suppress(OSError):
                self._link.shutdown(socket.SHUT_RDWR)
            self._link = None

    def _unreachable_s(self) -> float:
        return time.monotonic() - self._connected_at


def _end_process(why: str) -> None:
    print(f"costopt: this shard group has lost a process, and ends: {why}", file=sys.stderr)  # noqa: T201
    sys.stderr.flush()
    # Not sys.exit: the main thread may wait in a collective that no exception reaches.
    os._exit(1)


def _entered(address: protocol.MembershipAddress) -> socket.socket:
    """Return a connection on which both ends have proved that they know the secret, if there is
    one.

    Raise OSError, EOFError, ValueError or KeyError if that fails.
    """
    host, _, port = address.place.rpartition(":")
    link = socket.create_connection((host, int(port)), timeout=CONNECT_S)
    try:
        if address.key is not None and authenticate(link, address.key, {"op": "join"})[1] is None:
            raise ValueError(f"it does not know generation {address.key.generation} yet")
    except BaseException:
        link.close()
        raise
    return link
