"""Where the members of a gang meet: rank 0's agent says so, the others wait to hear it."""

from __future__ import annotations

import socket
from contextlib import suppress

from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Gang, Rendezvous


def await_rendezvous(gang: Gang, node_id: str, host: str, mailbox: Mailbox) -> Rendezvous | None:
    """The meeting place of the gang's generation, or None while rank 0 has not named one.

    An elastic gang meets through its membership; its trainers are told a place of their own, for
    what asks for one. Raises StoreError.
    """
    if gang.elastic:
        return Rendezvous(gang.generation, host, _free_port(host))
    if gang.rank(node_id) == 0:
        rendezvous = Rendezvous(gang.generation, host, _free_port(host))
        mailbox.post_rendezvous(rendezvous)
        return rendezvous
    return mailbox.rendezvous(gang.generation)


def _free_port(host: str) -> int:
    """One that is free at this address; at any, where the machine has the address of another."""
    with suppress(OSError):
        return _taken(host)
    return _taken("")


def _taken(host: str) -> int:
    with socket.create_server((host, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
