"""The membership's TCP server, and the choice of the node that hosts it.

``MembershipServer`` serves in a thread, or in a process of its own through ``main``.
``MembershipHost`` keeps a membership available for an elastic gang: on one of its nodes, and on
another once that node is lost.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import selectors
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from costopt.agent.membership import Membership
from costopt.agent.peers import PeerMonitor
from costopt.agent.settings import interval_s
from costopt.checkpoint.replicas.peer import ConnectionServer
from costopt.checkpoint.replicas.wire import GangKey, accept_peer
from costopt.domain.errors import StoreError
from costopt.protocol.mailbox import Mailbox, MembershipEndpoint
from costopt.protocol.membership import (
    HEARTBEAT_TIMEOUT_S,
    HeartbeatMessage,
    JoinMessage,
    LeaveMessage,
    MembershipAddress,
    ReadyMessage,
    decode,
    encode,
)
from costopt.protocol.messages import Gang
from costopt.protocol.stop_signals import handle_stop_signals

MAX_LINE_BYTES = 1 << 20
SEND_BUFFER_BYTES = 1 << 20
SEND_TIMEOUT_S = 2.0
WAKE_BUFFER_BYTES = 64


class MembershipServer:
    """A TCP server: listens once it is created, serves from ``start`` until ``close``.

    ``port`` 0 takes a free one. A client must know the secret of ``key`` to join; it stays when the
    key changes. Raise StoreError if the address is unavailable, or if there is no key and other
    machines could reach the address.
    """

    def __init__(
        self,
        membership: Membership | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        key: GangKey | None = None,
    ) -> None:
        self.key = key
        self._membership = Membership() if membership is None else membership
        if key is None and not _is_loopback(host):
            raise StoreError(
                f"a membership at {host} without a secret would accept any client",
                hint="pass --address-file, to which a secret is written, or serve at 127.0.0.1",
                code="no_secret",
            )
        try:
            listener = socket.create_server((host, port))
        except OSError as error:
            raise StoreError(
                f"cannot serve a membership at {host}:{port}: {error}",
                hint="choose a free port of an address of this machine, or port 0",
            ) from error
        self._host, self._port = host, listener.getsockname()[1]
        self._admitted: SimpleQueue[socket.socket] = SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self._waker, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._connections: dict[socket.socket, _Connection] = {}
        self._by_member: dict[str, _Connection] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="membership", daemon=True)
        self._acceptor = ConnectionServer(
            listener, self._admit, name="membership-door", stall_s=SEND_TIMEOUT_S
        )

    @property
    def address(self) -> str:
        """Return "host:port", for COSTOPT_MEMBERSHIP."""
        return f"{self._host}:{self._port}"

    @property
    def generation(self) -> int:
        """Return the gang's number; 0 before the first."""
        return self._membership.generation

    @property
    def gang(self) -> tuple[str, ...]:
        """Return the members that train, by rank."""
        return self._membership.gang

    @property
    def members(self) -> tuple[str, ...]:
        """Return every connected member, spares included."""
        return self._membership.members

    def steps(self) -> dict[str, int | None]:
        """Return how many steps each member has done, as it last reported."""
        return {name: s.step for name, s in self._membership.progress_by_member().items()}

    def start(self) -> MembershipServer:
        """Serve in a thread that does not keep the process alive."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop serving; trainers continue until they need to form the next gang."""
        self._acceptor.close()
        self._closing = True
        self._waker.send(b"x")
        if self._thread.is_alive():
            self._thread.join()

    def _serve(self) -> None:
        while not self._closing:
            now = time.monotonic()
            wait_s = max(0.0, self._membership.next_at(now) - now)
            for key, _ in self._selector.select(wait_s):
                self._handle(key.fileobj)
            for name in self._membership.advance(time.monotonic()):
                self._disconnect(self._by_member.get(name))
            self._post()
        for connection in list(self._connections.values()):
            self._disconnect(connection)
        for each in (self._waker, self._woken):
            each.close()
        self._selector.close()
        self._reject()

    def _admit(self, link: socket.socket) -> None:
        """Called in a thread of its own, so that a slow client does not delay the others."""
        if self.key is not None:
            caller = accept_peer(link, self.key)
            if caller is None:
                return
            caller.accept()
        self._admitted.put(link.dup())
        try:
            self._waker.send(b"x")
        except OSError:  # closed in the meantime
            self._reject()

    def _reject(self) -> None:
        """Disconnect clients that were admitted too late to be served."""
        with contextlib.suppress(Empty):
            while True:
                self._admitted.get_nowait().close()

    def _handle(self, source: object) -> None:
        if source is self._woken:
            for _ in self._woken.recv(WAKE_BUFFER_BYTES):
                with contextlib.suppress(Empty):
                    self._connect(self._admitted.get_nowait())
        elif isinstance(source, socket.socket) and source in self._connections:
            self._read(self._connections[source])

    def _connect(self, link: socket.socket) -> None:
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._connections[link] = _Connection(link)
        self._selector.register(link, selectors.EVENT_READ)

    def _read(self, connection: _Connection) -> None:
        try:
            for line in connection.lines():
                self._take(connection, line)
        except (OSError, ValueError, EOFError) as error:
            self._lose(connection, str(error) or "its connection closed")

    def _take(self, connection: _Connection, line: bytes) -> None:
        now, message = time.monotonic(), decode(line)
        if isinstance(message, JoinMessage):
            self._disconnect(self._by_member.pop(message.member, None))
            connection.member = message.member
            self._by_member[message.member] = connection
            self._membership.join(message, now)
        elif connection.member is None:
            raise ValueError("its first message was not Hello")
        elif isinstance(message, HeartbeatMessage):
            self._membership.beat(connection.member, message.standing, now)
        elif isinstance(message, ReadyMessage):
            self._membership.ready(connection.member, message, now)
        elif isinstance(message, LeaveMessage):
            self._membership.leave(connection.member, "it left", now, agreed=True)

    def _post(self) -> None:
        """A member that cannot be sent to is removed, which may queue more messages."""
        while self._membership.outbox:
            name, message = self._membership.outbox.pop(0)
            connection = self._by_member.get(name)
            if connection is None:
                continue
            try:
                connection.link.sendall(encode(message))
            except OSError as error:
                self._lose(connection, str(error))

    def _lose(self, connection: _Connection, why: str) -> None:
        member = connection.member
        if member is not None and self._by_member.get(member) is connection:
            self._membership.leave(member, why, time.monotonic())
        self._disconnect(connection)

    def _disconnect(self, connection: _Connection | None) -> None:
        if connection is None or connection.link not in self._connections:
            return
        del self._connections[connection.link]
        if connection.member is not None and self._by_member.get(connection.member) is connection:
            del self._by_member[connection.member]
        self._selector.unregister(connection.link)
        connection.link.close()


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


class _Connection:
    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.member: str | None = None
        self._unread = b""

    def lines(self) -> list[bytes]:
        """Return the complete lines received. Raise EOFError at the end, ValueError if one is too
        long.
        """
        data = self.link.recv(1 << 16)
        if not data:
            raise EOFError
        *lines, self._unread = (self._unread + data).split(b"\n")
        if len(self._unread) > MAX_LINE_BYTES:
            raise ValueError("it sent a line that is too long")
        return lines


def main() -> None:
    """``python -m costopt.agent.membership_server``: serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m costopt.agent.membership_server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--generation", type=int, default=0, help="number of the first gang")
    parser.add_argument(
        "--silent-s",
        type=interval_s,
        default=HEARTBEAT_TIMEOUT_S,
        help="seconds without a heartbeat after which a trainer is lost",
    )
    parser.add_argument(
        "--address-file",
        type=Path,
        help="file to which the address and a secret are written; only trainers with "
        "COSTOPT_MEMBERSHIP=file:///… of it may join",
    )
    options = parser.parse_args()
    membership = Membership(generation=options.generation, silent_s=options.silent_s)
    key = GangKey("", 0, secrets.token_hex(16)) if options.address_file is not None else None
    try:
        server = MembershipServer(membership, host=options.host, port=options.port, key=key)
    except StoreError as error:
        sys.exit(str(error))
    ended = threading.Event()
    with handle_stop_signals(lambda _: ended.set(), (signal.SIGTERM, signal.SIGINT)):
        server.start()
        if options.address_file is not None:
            MembershipAddress(server.address, key).write(options.address_file)
        print(server.address, flush=True)  # noqa: T201
        ended.wait()


if __name__ == "__main__":
    main()


HOST_HEARTBEAT_TIMEOUT_S = 3.0
TAKEN_OVER_S = 10.0
"""Members of the previous membership join again; new ones must not form a gang without them."""
STEPS_PER_GANG = 1000
"""Gangs that a membership forms are numbered between those of the controller."""


@dataclass(slots=True)
class MembershipHost:
    """This node's part in hosting: it serves if it is its turn and writes the address to a file.

    The node that serves continues as long as it is a member and sends heartbeats. Otherwise the
    reachable member with the lowest rank takes over; trainers find it through the file.
    """

    mailbox: Mailbox
    node_id: str
    host: str
    file: Path
    silent_s: float = HOST_HEARTBEAT_TIMEOUT_S
    _server: MembershipServer | None = None
    _announced: MembershipAddress | None = None

    @property
    def address(self) -> str:
        """Return what trainers are given: a file that holds the current address and its key."""
        return self.file.resolve().as_uri()

    def ensure_running(self, gang: Gang, peers: PeerMonitor) -> None:
        """Serve, or learn which node does. Raise StoreError if the store does not answer."""
        place = self.mailbox.membership()
        if self._is_mine(gang, peers, place):
            place = self._serve(gang, place)
        elif self._server is not None:
            self._server.close()
            self._server = None
        if place is None:
            return
        address = MembershipAddress(place.address, gang.key)
        if address != self._announced:
            address.write(self.file)
            self._announced = address

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _is_mine(self, gang: Gang, peers: PeerMonitor, place: MembershipEndpoint | None) -> bool:
        silent = peers.unreachable(time.monotonic() - self.silent_s)
        heard = [member for member in gang.members if member not in silent]
        if place is not None and place.node_id in heard:
            return place.node_id == self.node_id
        return bool(heard) and heard[0] == self.node_id

    def _serve(self, gang: Gang, place: MembershipEndpoint | None) -> MembershipEndpoint | None:
        """Return the address at which this node serves, None if it cannot.

        Its trainers then end for that reason and report it, since the node still sends heartbeats.
        """
        if self._server is not None:
            self._server.key = gang.key
            if place is not None and place.node_id == self.node_id:
                return place
        else:
            started = Membership(generation=gang.generation * STEPS_PER_GANG)
            if place is not None:
                started.settle_s = TAKEN_OVER_S
            try:
                server = MembershipServer(started, host=self.host, key=gang.key)
            except StoreError as error:
                print(error, file=sys.stderr, flush=True)  # noqa: T201
                return None
            self._server = server.start()
        mine = MembershipEndpoint(self.node_id, self._server.address)
        self.mailbox.post_membership(mine)
        return mine
