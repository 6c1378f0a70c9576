"""Who trains together: formed when all are ready, never with who is gone or was left behind."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from costopt.agent import membership_server
from costopt.agent.membership import Membership
from costopt.agent.membership_server import MembershipServer
from costopt.checkpoint.replicas import wire
from costopt.checkpoint.replicas.wire import GangKey, authenticate, receive_frame, send_frame
from costopt.domain.errors import StoreError
from costopt.protocol.membership import (
    GangFormedMessage,
    GangOverMessage,
    HeartbeatMessage,
    JoinMessage,
    JoinPendingMessage,
    MembershipAddress,
    ReadyMessage,
    ToTrainer,
    TrainerProgress,
    decode,
    encode,
)
from tests.support.errors import has_code

NEW = TrainerProgress()
PATIENCE_S = 120.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that hangs up on nobody who only waits for its turn on a busy machine."""
    monkeypatch.setattr(membership_server, "SEND_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(wire, "HANDSHAKE_TIMEOUT_S", PATIENCE_S)


class Table:
    """A membership with a clock that only moves when told."""

    def __init__(self, **options: Any) -> None:
        self.now = 100.0
        self.membership = Membership(**options)

    def come(self, *names: str, standing: TrainerProgress = NEW, **options: Any) -> None:
        for name in names:
            fields = {"most": 8, **options}
            self.membership.join(JoinMessage(name, f"{name}:1", standing, **fields), self.now)

    def wait(self, seconds: float, *beating: str) -> None:
        steps = round(seconds / 0.25)
        for _ in range(steps):
            self.now += 0.25
            for name in beating:
                standing = self.membership.progress_by_member().get(name, TrainerProgress())
                self.membership.beat(name, standing, self.now)
            self.membership.advance(self.now)

    def ready(self, *names: str, step: int = 0, failed: bool = False) -> None:
        standing = TrainerProgress(self.membership.generation, step)
        for name in names:
            self.membership.ready(name, ReadyMessage(standing, failed), self.now)

    def messages(self) -> dict[str, list[ToTrainer]]:
        self.membership.advance(self.now)
        sent: dict[str, list[ToTrainer]] = {}
        for name, message in self.membership.outbox:
            sent.setdefault(name, []).append(message)
        self.membership.outbox.clear()
        return sent

    def formed(self) -> GangFormedMessage:
        """What all of the gang were told last."""
        messages = [messages[-1] for messages in self.messages().values()]
        assert messages
        assert all(message == messages[0] for message in messages)
        assert isinstance(messages[0], GangFormedMessage)
        return messages[0]


def trained(*names: str, step: int = 5) -> Table:
    """A gang at a step."""
    table = Table()
    table.come(*names, expected=len(names))
    assert table.formed().members == names
    for name in names:
        table.membership.beat(name, TrainerProgress(1, step), table.now)
    return table


def test_a_first_gang_waits_for_the_expected_number() -> None:
    table = Table()
    table.come("a", expected=2)
    assert table.messages() == {}
    table.come("b", expected=2)
    formed = table.formed()
    assert formed.members == ("a", "b")
    assert (formed.generation, formed.source, formed.store) == (1, None, "a:1")


def test_a_first_gang_of_unknown_size_waits_until_no_more_come() -> None:
    table = Table(settle_s=1.0)
    table.come("a")
    table.wait(0.75, "a")
    table.come("b")
    table.wait(0.75, "a", "b")
    assert table.messages() == {}
    table.wait(0.25, "a", "b")
    assert table.formed().members == ("a", "b")


def test_who_closes_its_connection_is_gone_at_once() -> None:
    table = trained("a", "b", "c")
    table.membership.leave("b", "its connection closed", table.now)
    over = GangOverMessage(1, "b: its connection closed")
    assert table.messages() == {"a": [over], "c": [over]}
    table.ready("a", step=5, failed=True)
    assert not any(
        isinstance(x, GangFormedMessage) for each in table.messages().values() for x in each
    )
    table.ready("c", step=6, failed=True)
    formed = table.formed()
    assert (formed.generation, formed.members) == (2, ("a", "c"))
    assert (formed.source, formed.aligned) == (1, False)


def test_who_is_silent_is_gone_soon_and_new_when_it_wakes() -> None:
    table = trained("a", "b")
    table.wait(1.5, "a")
    assert table.messages() == {"a": [GangOverMessage(1, "b: no heartbeat for 1.2 s")]}
    table.ready("a", step=9, failed=True)
    assert table.formed().members == ("a",)
    table.membership.beat("a", TrainerProgress(2, 10), table.now)
    table.come("b", standing=TrainerProgress(1, 8), generation=1, gang=("a", "b"))
    assert table.messages() == {"b": [GangOverMessage(1, "the others went on without you")]}
    table.membership.ready("b", ReadyMessage(TrainerProgress(1, 8), failed=True), table.now)
    assert table.messages() == {"a": [JoinPendingMessage("b joined")]}
    table.ready("a", step=11)
    formed = table.formed()
    assert formed.members == ("a", "b")
    assert (formed.source, formed.aligned) == (0, False)


def test_the_state_of_who_was_left_behind_counts_for_nothing() -> None:
    table = trained("a", "b")
    table.wait(1.5, "a")
    table.ready("a", step=9, failed=True)
    table.messages()
    table.membership.beat("a", TrainerProgress(2, 10), table.now)
    table.membership.leave("a", "killed", table.now)
    table.come("b", standing=TrainerProgress(1, 8), expected=1)
    assert table.formed().source is None


def test_a_joiner_waits_for_a_step_to_end() -> None:
    table = trained("a", "b")
    table.come("c")
    assert table.messages() == {
        "a": [JoinPendingMessage("c joined")],
        "b": [JoinPendingMessage("c joined")],
    }
    table.ready("a", step=6)
    assert table.messages() == {}
    table.ready("b", step=6)
    formed = table.formed()
    assert formed.members == ("a", "b", "c")
    assert (formed.source, formed.aligned) == (0, False)


def test_who_leaves_by_agreement_disturbs_no_one() -> None:
    table = trained("a", "b", "c")
    table.membership.leave("a", "it left", table.now, agreed=True)
    assert table.messages() == {}
    table.ready("b", "c", step=6)
    formed = table.formed()
    assert formed.members == ("b", "c")
    assert formed.aligned


def test_a_trainer_that_says_none_may_train_ends_no_membership() -> None:
    table = Table()
    table.come("a", most=0, expected=1)
    table.wait(1.0, "a")
    assert table.formed().members == ("a",)


def test_more_than_fit_are_spares_and_take_the_place_of_who_goes() -> None:
    table = Table()
    table.come("a", "b", "c", most=2, expected=3)
    formed = table.formed()
    assert formed.members == ("a", "b")
    table.membership.leave("a", "killed", table.now)
    table.ready("b", step=3, failed=True)
    assert table.formed().members == ("b", "c")


def test_who_hangs_is_counted_out() -> None:
    table = trained("a", "b", "c")
    table.membership.leave("c", "killed", table.now)
    table.ready("a", step=5, failed=True)
    table.membership.hung_s = 10.0
    table.wait(9.75, "a", "b")
    assert "b" in table.membership.members
    table.wait(0.5, "a", "b")
    assert table.formed().members == ("a",)


def adopting(*names: str) -> Table:
    """A membership that starts again, to which some of a gang of two have come back."""
    table = Table()
    table.come(*names, standing=TrainerProgress(7, 40), generation=7, gang=("a", "b"))
    assert table.messages() == {}
    return table


def test_a_restarted_membership_adopts_the_gang_that_runs() -> None:
    table = adopting("a", "b")
    assert table.membership.generation == 7
    assert table.membership.gang == ("a", "b")
    table.come("c")
    assert table.messages() == {
        "a": [JoinPendingMessage("c joined")],
        "b": [JoinPendingMessage("c joined")],
    }
    table.membership.leave("b", "killed", table.now)
    table.membership.ready("a", ReadyMessage(TrainerProgress(7, 41), failed=True), table.now)
    formed = table.formed()
    assert (formed.generation, formed.members, formed.source) == (8, ("a", "c"), 0)


def test_an_adopted_gang_hears_of_who_waited_before_it_came_back() -> None:
    table = Table()
    table.come("c", expected=2)
    table.come("a", standing=TrainerProgress(7, 40), generation=7, gang=("a",))
    assert table.messages() == {"a": [JoinPendingMessage("c joined")]}


def test_an_adopted_gang_is_over_where_a_member_does_not_come_back() -> None:
    table = adopting("a")
    table.wait(1.75, "a")
    assert table.messages() == {}
    table.wait(0.25, "a")
    assert table.messages() == {"a": [GangOverMessage(7, "b: did not join again")]}
    table.ready("a", step=40, failed=True)
    assert table.formed().members == ("a",)
    table.wait(3.0, "a")
    assert table.messages() == {}


def test_an_adopted_gang_is_over_where_a_member_comes_back_out_of_it() -> None:
    table = adopting("a")
    table.come("b", standing=TrainerProgress(7, 40), generation=7)
    assert table.messages() == {"a": [GangOverMessage(7, "it broke at b")]}
    table.ready("a", step=40, failed=True)
    assert table.formed().members == ("a", "b")


def test_a_gang_whose_state_a_member_has_not_taken_up_yet_is_over_all_the_same() -> None:
    table = Table(generation=3000)
    table.come("a", standing=TrainerProgress(8, 40), generation=8, gang=("a", "b"))
    table.come("b", standing=TrainerProgress(7, 40), generation=8, gang=("a", "b"))
    over = GangOverMessage(8, "the others went on without you")
    assert table.messages() == {"a": [over], "b": [over]}


def test_a_gang_of_none_is_formed_like_the_first() -> None:
    table = trained("a", "b")
    table.membership.leave("a", "killed", table.now)
    table.membership.leave("b", "killed", table.now)
    table.come("c", expected=2)
    assert table.messages() == {}
    table.come("d", expected=2)
    formed = table.formed()
    assert (formed.generation, formed.source) == (2, None)


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b'{"kind": "hello"}', b'{"kind": 3}', b"\xff"])
def test_nonsense_is_not_a_message(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode(line)


@pytest.mark.parametrize(
    "wrong",
    [{"member": ["a"]}, {"standing": {"generation": "x"}}, {"gang": 5}, {"most": None}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_unknown_message_ends_no_membership(wrong: dict[str, Any]) -> None:
    server = MembershipServer(Membership(silent_s=PATIENCE_S, settle_s=0.0)).start()
    with knock(server) as link:
        fields = json.loads(encode(JoinMessage("a", "a:1", TrainerProgress(), most=8, expected=1)))
        link.sendall(json.dumps({**fields, **wrong}).encode() + b"\n")
        assert link.recv(10) == b""
    with talk(server, "b") as link:
        assert isinstance(decode(link.makefile("rb").readline()), GangFormedMessage)
    server.close()


def test_a_message_survives_the_way() -> None:
    for message in (
        JoinMessage("a", "h:1", TrainerProgress(2, 3), conditions=("threads=1",), gang=("a", "b")),
        GangFormedMessage(3, ("a", "b"), 0, True, "h:1", (("threads=1",), ())),
    ):
        assert decode(encode(message)) == message


def talk(server: MembershipServer, name: str) -> socket.socket:
    host, port = server.address.split(":")
    link = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    link.sendall(encode(JoinMessage(name, f"{name}:1", TrainerProgress(), most=8, expected=2)))
    return link


def test_the_server_forms_a_gang_and_forgets_who_hangs_up_or_talks_nonsense() -> None:
    server = MembershipServer(Membership(silent_s=PATIENCE_S, settle_s=PATIENCE_S)).start()
    first, second = talk(server, "a"), talk(server, "b")
    for link in (first, second):
        message = decode(link.makefile("rb").readline())
        assert isinstance(message, GangFormedMessage)
        assert set(message.members) == {"a", "b"}
        link.sendall(encode(HeartbeatMessage(TrainerProgress(1, 0))))
    second.sendall(b"nonsense\n")
    assert isinstance(decode(first.makefile("rb").readline()), GangOverMessage)
    assert second.recv(10) == b""
    first.close()
    until = time.monotonic() + PATIENCE_S
    while server.members and time.monotonic() < until:
        time.sleep(0.01)
    assert server.members == ()
    server.close()
    second.close()


KEY = GangKey("j", 3, "secret")


@pytest.fixture
def guarded() -> Iterator[MembershipServer]:
    server = MembershipServer(Membership(silent_s=PATIENCE_S, settle_s=0.0), key=KEY).start()
    yield server
    server.close()


def knock(server: MembershipServer) -> socket.socket:
    host, port = server.address.split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def send_join(link: socket.socket) -> None:
    link.sendall(encode(JoinMessage("stranger", "s:1", TrainerProgress(), most=8, expected=1)))


def test_who_knows_the_secret_joins_and_is_answered_by_who_knows_it(
    guarded: MembershipServer,
) -> None:
    with knock(guarded) as link:
        _, response = authenticate(link, KEY, {"op": "join"})
        assert response == {"ok": True}
        send_join(link)
        message = decode(link.makefile("rb").readline())
        assert isinstance(message, GangFormedMessage)
        assert guarded.members == ("stranger",)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (GangKey("j", 3, "guessed"), "not signed with the gang's secret"),
        (GangKey("j", 2, "secret"), "generation 2 is over"),
        (GangKey("other", 3, "secret"), "this node trains j"),
    ],
)
def test_a_stranger_neither_reads_nor_changes_the_membership(
    guarded: MembershipServer, key: GangKey, says: str
) -> None:
    with knock(guarded) as link:
        with pytest.raises(ValueError, match=says):
            authenticate(link, key, {"op": "join"})
        assert_shut(link)
    assert guarded.members == ()


def test_a_generation_that_is_not_known_yet_is_reported_to_come_again(
    guarded: MembershipServer,
) -> None:
    with knock(guarded) as link:
        assert authenticate(link, GangKey("j", 4, "next"), {"op": "join"})[1] is None
        assert_shut(link)
    guarded.key = GangKey("j", 4, "next")
    with knock(guarded) as link:
        assert authenticate(link, GangKey("j", 4, "next"), {"op": "join"})[1] == {"ok": True}


def test_who_knows_no_secret_at_all_learns_nothing(guarded: MembershipServer) -> None:
    with knock(guarded) as link:
        send_join(link)
        assert list(receive_frame(link)) == ["nonce"]
        assert "refused" in receive_frame(link)
        assert_shut(link)
    assert guarded.members == ()


def drip(link: socket.socket) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        link.sendall(b"x")
        time.sleep(0.05)


def test_a_slow_sender_is_hung_up_on(
    guarded: MembershipServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "HANDSHAKE_TIMEOUT_S", 0.2)
    with knock(guarded) as link:
        receive_frame(link)
        link.sendall(b"\0\0\1\0")
        with pytest.raises(OSError, match=r".*"):
            drip(link)


def test_an_answer_that_was_overheard_opens_nothing(guarded: MembershipServer) -> None:
    with knock(guarded) as link:
        nonce = str(receive_frame(link)["nonce"])
        fields = {"op": "join", "job": "j", "generation": 3, "nonce": "n"}
        overheard = KEY.sign(nonce, fields)
        send_frame(link, overheard)
        assert receive_frame(link)["ok"] is True
    with knock(guarded) as link:
        receive_frame(link)
        send_frame(link, overheard)
        assert "not signed" in receive_frame(link)["refused"]
        assert_shut(link)
    assert guarded.members == ()


def assert_shut(link: socket.socket) -> None:
    """Whatever is said now reaches nobody."""
    with contextlib.suppress(OSError):
        send_join(link)
        assert link.recv(100) == b""


def test_without_a_secret_only_this_machine_is_served() -> None:
    with pytest.raises(StoreError, check=has_code("no_secret")):
        MembershipServer(host="0.0.0.0")


def test_the_key_is_kept_from_other_users(tmp_path: Path) -> None:
    path = tmp_path / "membership"
    address = MembershipAddress("10.0.0.7:400", KEY)
    address.write(path)
    assert path.stat().st_mode & 0o077 == 0
    assert MembershipAddress.read(path.as_uri()) == address
    assert MembershipAddress.read("10.0.0.7:400") == MembershipAddress("10.0.0.7:400")
    path.write_text("[]")
    with pytest.raises(ValueError, match="does not contain"):
        MembershipAddress.read(path.as_uri())
