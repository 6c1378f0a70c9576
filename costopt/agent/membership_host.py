"""Keeps a membership up for an elastic gang: on one of its nodes, on another when that is lost."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from costopt.agent.membership import Membership
from costopt.agent.membership_server import MembershipServer
from costopt.agent.peers import PeerMonitor
from costopt.domain.errors import StoreError
from costopt.protocol.mailbox import Mailbox, MembershipEndpoint
from costopt.protocol.membership import MembershipAddress
from costopt.protocol.messages import Gang

HEARTBEAT_TIMEOUT_S = 3.0
TAKEN_OVER_S = 10.0
"""Who trains comes back from the membership before; who is new must not begin without them."""
STEPS_PER_GANG = 1000
"""Gangs that a membership forms by itself are numbered between those of the controller."""


@dataclass(slots=True)
class MembershipHost:
    """This node's part: it serves where the turn is its own, and writes the address to a file.

    The node that serves goes on as long as it is a member and heard of. When it is not, the first
    of the others, by rank, that is heard of takes over; trainers find it through the file.
    """

    mailbox: Mailbox
    node_id: str
    host: str
    file: Path
    silent_s: float = HEARTBEAT_TIMEOUT_S
    _server: MembershipServer | None = None
    _told: MembershipAddress | None = None

    @property
    def address(self) -> str:
        """What trainers are told: a file that holds the present address and the key to it."""
        return self.file.resolve().as_uri()

    def ensure_running(self, gang: Gang, peers: PeerMonitor) -> None:
        """Serve, or learn who does. Raises StoreError."""
        place = self.mailbox.membership()
        if self._is_mine(gang, peers, place):
            place = self._serve(gang, place)
        elif self._server is not None:
            self._server.close()
            self._server = None
        if place is None:
            return
        address = MembershipAddress(place.address, gang.key)
        if address != self._told:
            address.write(self.file)
            self._told = address

    def close(self) -> None:
        """Serve no more."""
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
        """None where this node cannot: its trainers end for that and say so, as it goes on to be
        heard of."""
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
