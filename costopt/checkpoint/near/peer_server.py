"""Lets the other nodes of the gang put snapshots into this node's memory, and fetch them."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any

from costopt.checkpoint.near.frame import receive_frame, receive_into, send_bytes, send_frame
from costopt.checkpoint.near.gang_key import GangKey, fresh_nonce
from costopt.checkpoint.near.memory import SnapshotMemory
from costopt.checkpoint.near.peer import STALL_S
from costopt.checkpoint.near.snapshot import Snapshot
from costopt.domain.errors import CostoptError, StoreError

MOST_CONNECTIONS = 8


class PeerServer:
    """Serves in threads from when it is made until ``close``. ``key`` None refuses everybody.

    Raises StoreError where the address cannot be had.
    """

    def __init__(self, memory: SnapshotMemory, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.key: GangKey | None = None
        self._memory = memory
        self._room = threading.Semaphore(MOST_CONNECTIONS)
        try:
            self._listener = socket.create_server((host, port))
        except OSError as error:
            raise StoreError(
                f"cannot serve snapshots at {host}:{port}: {error}",
                hint="give an address of this machine",
            ) from error
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, name="snapshots", daemon=True).start()

    def close(self) -> None:
        """Accept nobody any more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            self._room.acquire()
            threading.Thread(target=self._attend, args=(link,), daemon=True).start()

    def _attend(self, link: socket.socket) -> None:
        try:
            with link, suppress(OSError, EOFError):
                link.settimeout(STALL_S)
                self._serve(link)
        finally:
            self._room.release()

    def _serve(self, link: socket.socket) -> None:
        nonce = fresh_nonce()
        send_frame(link, {"nonce": nonce})
        try:
            letter, key = receive_frame(link), self.key
            if key is None or _is_later(letter, key):
                send_frame(link, {"later": True})
                return
            request = _opened(letter, key, nonce)
            self._answer(link, key, request)
        except (ValueError, KeyError, TypeError) as error:
            send_frame(link, {"refused": str(error)})
        except CostoptError as error:
            send_frame(link, {"refused": str(error)})

    def _answer(self, link: socket.socket, key: GangKey, request: dict[str, Any]) -> None:
        def grant(**fields: Any) -> None:
            send_frame(link, key.signed(str(request["nonce"]), {"ok": True, **fields}))

        match request["op"]:
            case "list":
                grant(snapshots=[held.snapshot.encode() for held in self._memory.held()])
            case "fetch":
                held = self._memory.find(Snapshot.decode(request["snapshot"]))
                if held is None:
                    raise ValueError("the snapshot is not here any more")
                grant()
                send_bytes(link, held.view)
            case "give":
                snapshot = Snapshot.decode(request["snapshot"])
                with self._memory.receiving(snapshot) as target:
                    grant()
                    receive_into(link, target)
                    snapshot.check(target)
                grant()
            case other:
                raise ValueError(f"nothing answers {other!r}")


def _is_later(letter: dict[str, Any], key: GangKey) -> bool:
    """Whether the asker knows of a generation that this node has not heard of yet."""
    return letter.get("job") == key.job and int(letter.get("generation", 0)) > key.generation


def _opened(letter: dict[str, Any], key: GangKey, nonce: str) -> dict[str, Any]:
    if letter.get("job") != key.job:
        raise ValueError(f"this node trains {key.job}")
    if int(letter.get("generation", 0)) < key.generation:
        raise ValueError(
            f"generation {letter['generation']} is over: generation {key.generation} trains"
        )
    return key.opened(nonce, letter)
