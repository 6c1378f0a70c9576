"""Attends whoever connects to a listening socket, in a thread for each."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from costopt.checkpoint.near.frame import send_frame
from costopt.domain.errors import CostoptError

MAX_CONNECTIONS = 32
PAUSE_S = 0.05


class ConnectionServer:
    """Accepts from when it is made until ``close``.

    ``attend`` is given each connection, which is closed when it returns, and may stand still for
    ``stall_s``. What it raises ends the connection; ValueError, KeyError, TypeError and
    CostoptError are told as {"refused": why}.
    """

    def __init__(
        self,
        listener: socket.socket,
        attend: Callable[[socket.socket], None],
        *,
        name: str,
        stall_s: float,
    ) -> None:
        self._listener, self._attend, self._stall_s = listener, attend, stall_s
        self._closed = False
        self._room = threading.Semaphore(MAX_CONNECTIONS)
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    def close(self) -> None:
        """Accept nobody any more."""
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                link, _ = self._listener.accept()
            except OSError:
                # Closed; or no descriptor is free, or who called is gone: others still come.
                time.sleep(PAUSE_S)
                continue
            self._room.acquire()
            threading.Thread(target=self._receive, args=(link,), daemon=True).start()

    def _receive(self, link: socket.socket) -> None:
        try:
            with link, suppress(OSError, EOFError):
                link.settimeout(self._stall_s)
                self._serve(link)
        finally:
            self._room.release()

    def _serve(self, link: socket.socket) -> None:
        try:
            self._attend(link)
        except (ValueError, KeyError, TypeError) as error:
            send_frame(link, {"refused": str(error)})
        except CostoptError as error:
            send_frame(link, {"refused": error.message})
