"""A port that nobody takes before who it is meant for does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """Bound on the loopback and not listened at: whoever sets SO_REUSEADDR, as torch's store and
    libuv do, may bind it as well and listen, and the system gives it to nobody (socket(7))."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
