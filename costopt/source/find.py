"""Which source is read where none is named: the daemon of this folder or user, else the ledger."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from costopt.client.client import UNIX, DaemonClient, parse_address
from costopt.controller.state_dir import SOCKET
from costopt.source.base import Source

ANSWER_TIMEOUT_S = 2.0


def daemon_sockets(state_dir: Path) -> tuple[Path, ...]:
    """Return the sockets of the daemon in a state directory, and of this user's, that exist."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    places = (state_dir / SOCKET, Path(runtime) / "costopt" / SOCKET)
    return tuple(place for place in places if place.is_socket())


def find_server(state_dir: Path) -> str:
    """Return the address of the daemon in the state directory, or of this user's if only that
    exists."""
    return f"{UNIX}{(*daemon_sockets(state_dir), state_dir / SOCKET)[0]}"


def find_source(state_dir: Path) -> tuple[Source, str]:
    """Return the daemon in the state directory, or this user's; where none answers, the ledger in
    the state directory. Return also a note on which it is, and why. Raise LedgerError."""
    from costopt.source.daemon import DaemonSource
    from costopt.source.ledger import LedgerSource

    why = ""
    if daemon_sockets(state_dir):
        address = find_server(state_dir)
        unreachable = _unreachable_reason(address.removeprefix(UNIX))
        if unreachable is None:
            daemon = DaemonSource(DaemonClient(parse_address(address)), address)
            return daemon, f"read from {daemon.name}"
        why = f"no daemon answers at {address} ({unreachable}): "
    ledger = LedgerSource(state_dir)
    return ledger, f"{why}read from {ledger.name}"


def _unreachable_reason(path: str) -> str | None:
    """Return why nothing answers at a socket, None if something does."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(ANSWER_TIMEOUT_S)
            link.connect(path)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None
