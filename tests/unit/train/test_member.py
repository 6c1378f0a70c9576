"""What a trainer says of itself when its line to the membership is new."""

from __future__ import annotations

import socket
import threading
from typing import Any

from costopt.protocol.membership import (
    GangFormedMessage,
    ReadyMessage,
    TrainerProgress,
    decode,
    encode,
)
from costopt.train.membership_client import MembershipClient


class Line:
    """The membership's end of a member's next line."""

    def __init__(self, door: socket.socket) -> None:
        self._link, _ = door.accept()
        self._messages = self._link.makefile("rb")

    def read(self) -> Any:
        return decode(self._messages.readline())

    def write(self, formed: GangFormedMessage) -> None:
        self._link.sendall(encode(formed))

    def close(self) -> None:
        self._messages.close()
        self._link.close()


def test_a_line_that_breaks_before_a_gang_is_accepted_does_not_return_to_the_last_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        place = f"127.0.0.1:{door.getsockname()[1]}"
        member = MembershipClient(place, store_at=lambda host: f"{host}:1", most=2)
        line = Line(door)
        assert line.read().ready
        line.write(GangFormedMessage(8, (member.name, "b"), 0, False, place))
        line.close()
        assert member.next_gang(failed=False).generation == 8

        line = Line(door)
        send_join = line.read()
        assert (send_join.generation, send_join.gang) == (8, (member.name, "b"))
        assert send_join.standing == TrainerProgress()
        waiting = threading.Thread(target=lambda: member.next_gang(failed=True), daemon=True)
        waiting.start()
        while not isinstance(line.read(), ReadyMessage):
            continue
        line.close()

        line = Line(door)
        send_join = line.read()
        assert (send_join.generation, send_join.ready) == (8, True)
        line.write(GangFormedMessage(9, (member.name,), None, False, place))
        waiting.join()
        member.leave()
        line.close()
