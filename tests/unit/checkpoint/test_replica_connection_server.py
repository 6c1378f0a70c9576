"""Who connects to a node is attended, whatever became of those before."""

from __future__ import annotations

import errno
import socket
import threading
from typing import Any

from costopt.checkpoint.replicas.peer import ConnectionServer
from tests.support.live_run import wait_until


class Short(socket.socket):
    """A listener of a process that has no descriptor left for the first who comes."""

    failed = False

    def accept(self) -> Any:
        link = super().accept()
        if not self.failed:
            self.failed = True
            link[0].close()
            raise OSError(errno.EMFILE, "Too many open files")
        return link


def test_one_that_cannot_be_accepted_keeps_no_other_out() -> None:
    listener = Short(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    attended: list[bytes] = []
    acceptor = ConnectionServer(
        listener, lambda link: attended.append(link.recv(9)), name="door", stall_s=120.0
    )
    address = listener.getsockname()
    for said in (b"first", b"second"):
        with socket.create_connection(address) as link:
            link.sendall(said)
    wait_until(lambda: attended == [b"second"], "second caller", 120.0)
    acceptor.close()
    wait_until(lambda: all(thread.name != "door" for thread in threading.enumerate()), "end", 120.0)
