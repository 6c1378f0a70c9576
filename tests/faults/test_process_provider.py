"""Process mode as a cloud: notices, strikes, dead nodes, and a controller that comes back."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costopt.domain.errors import BadRequestError
from costopt.domain.fleet import EndCause, LaunchRequest, Node, NodeState
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import CapacityType, Pool
from costopt_sim import SimProvider, connect
from costopt_sim.process_host import is_running
from costopt_sim.process_provider import ProcessProvider
from tests.support.live_run import wait_until

START = datetime(2026, 3, 1, tzinfo=UTC)
SPOT = Pool.parse("sim/here/a/small/spot")
FLEX = SPOT.with_capacity_type(CapacityType.FLEX_START)


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = START

    def now(self) -> datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


class Nothing:
    """Stands in for the catalogue and the runtime, which these tests do not use."""

    def instance_type(self, pool: Pool) -> None:
        return None

    def form_gang(self) -> None:
        return None


def market() -> MarketHistory:
    states = (
        MarketState(START, 3, 0.5),
        MarketState(START + timedelta(hours=1), 1, 0.5),
        MarketState(START + timedelta(hours=2), 0, 0.5),
    )
    later = (MarketState(START, 0, 0.4), MarketState(START + timedelta(hours=1), 1, 0.6))
    pools = {
        pool: PoolHistory(pool, reported, START + timedelta(days=1))
        for pool, reported in ((SPOT, states), (FLEX, later))
    }
    return MarketHistory("m", pools, None, "typed in")


@contextmanager
def controller(clock: Hand, folder: Path) -> Iterator[ProcessProvider]:
    options = {
        "market": market(),
        "machines": Nothing(),
        "mode": "process",
        "notice_s": 120.0,
        "state_dir": folder,
        "store": folder / "store",
        "runtime": Nothing(),
    }
    provider: SimProvider = connect(clock, options)
    assert isinstance(provider, ProcessProvider)
    try:
        yield provider
    finally:
        provider.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    with controller(Hand(), tmp_path) as provider:
        for node_id in provider.host.running():
            provider.terminate(node_id)


def launch(
    provider: ProcessProvider, nodes: int, key: str = "k1", pool: Pool = SPOT
) -> tuple[Node, ...]:
    return provider.launch(LaunchRequest("me", "job", pool, nodes, key))


def wait_for(cause: EndCause, provider: ProcessProvider, node_id: str) -> Node:
    def node() -> Node:
        return {node.node_id: node for node in provider.nodes("me")}[node_id]

    wait_until(lambda: node().end_cause is cause, f"end of {node_id} as {cause}")
    return node()


def wait_until_gone(process: tuple[int, int]) -> None:
    """A process that was killed takes a moment to die."""
    wait_until(lambda: not is_running(*process), f"end of process {process[0]}")


def agent(provider: ProcessProvider, node: Node) -> tuple[int, int]:
    fields = json.loads((provider.host.folder(node.node_id) / "node.json").read_text())
    return fields["pid"], fields["started_ticks"]


def test_a_notice_is_a_file_and_an_interruption_is_sigkill(folder: Path) -> None:
    clock = Hand()
    with controller(clock, folder) as provider:
        stays, goes = launch(provider, 2)
        notice = provider.host.folder(goes.node_id) / "notice.json"
        clock.at = START + timedelta(minutes=57)
        assert provider.notices("me") == ()
        clock.at = START + timedelta(minutes=58)
        wait_until(notice.exists, "notice")
        assert json.loads(notice.read_text())["time"] == "2026-03-01T01:00:00+00:00"
        assert is_running(*agent(provider, goes))
        clock.at = START + timedelta(minutes=60)
        ended = wait_for(EndCause.INTERRUPTED, provider, goes.node_id)
        assert ended.ended_at == START + timedelta(hours=1)
        wait_until_gone(agent(provider, goes))
        assert is_running(*agent(provider, stays))
        provider.terminate(stays.node_id)
        wait_until_gone(agent(provider, stays))


def test_a_node_that_dies_without_an_interruption_has_failed(folder: Path) -> None:
    with controller(Hand(), folder) as provider:
        (node,) = launch(provider, 1)
        os.killpg(agent(provider, node)[0], signal.SIGKILL)
        assert "agent.log" in wait_for(EndCause.FAILED, provider, node.node_id).message


def test_a_new_controller_takes_over_what_runs(folder: Path) -> None:
    clock = Hand()
    with controller(clock, folder) as provider:
        first = launch(provider, 2)
        processes = [agent(provider, node) for node in first]
    clock.at += timedelta(minutes=5)
    with controller(clock, folder) as provider:
        assert provider.nodes("me") == first
        assert launch(provider, 2) == first, "the same key launches nothing"
        assert all(is_running(*process) for process in processes)
        (other,) = launch(provider, 1, key="k2")
        assert other.node_id not in {node.node_id for node in first}


def test_an_unobserved_interruption_is_applied_on_return(folder: Path) -> None:
    clock = Hand()
    with controller(clock, folder) as provider:
        stays, goes = launch(provider, 2)
        process = agent(provider, goes)
    clock.at = START + timedelta(minutes=90)
    with controller(clock, folder) as provider:
        ended = wait_for(EndCause.INTERRUPTED, provider, goes.node_id)
        assert ended.ended_at == START + timedelta(hours=1)
        wait_until_gone(process)
        states = {node.node_id: node.state for node in provider.nodes("me")}
        assert states[stays.node_id] is NodeState.RUNNING


def test_a_node_that_waits_is_remembered_and_starts_for_another_controller(folder: Path) -> None:
    clock = Hand()
    with controller(clock, folder) as provider:
        (waits,) = launch(provider, 1, pool=FLEX)
        assert waits.state is NodeState.WAITING
    clock.at += timedelta(minutes=30)
    with controller(clock, folder) as provider:
        assert provider.nodes("me") == (waits,)
        assert launch(provider, 1, pool=FLEX) == (waits,), "the same key asks for no other"
    clock.at += timedelta(minutes=45)
    with controller(clock, folder) as provider:
        (runs,) = provider.nodes("me")
        assert (runs.node_id, runs.state) == (waits.node_id, NodeState.RUNNING)
        assert (runs.launched_at, runs.usd_per_hour) == (START + timedelta(hours=1), 0.6)
        assert is_running(*agent(provider, runs))


def test_a_node_that_waits_is_let_go_for_good(folder: Path) -> None:
    clock = Hand()
    with controller(clock, folder) as provider:
        (waits,) = launch(provider, 1, pool=FLEX)
    with controller(clock, folder) as provider:
        provider.terminate(waits.node_id)
    clock.at += timedelta(minutes=75)
    with controller(clock, folder) as provider:
        (ended,) = provider.nodes("me")
        assert (ended.end_cause, ended.ended_at) == (EndCause.RELEASED, START)


def test_half_a_launch_is_undone_and_done_again(folder: Path) -> None:
    clock = Hand()
    with controller(clock, folder) as provider:
        (half,) = launch(provider, 1)
        process = agent(provider, half)
    with controller(clock, folder) as provider:
        both = launch(provider, 2)
        assert half.node_id not in {node.node_id for node in both}
        wait_until_gone(process)
    with controller(clock, folder) as provider:
        assert launch(provider, 2) == both


def test_a_launch_whose_process_was_never_known_has_failed(folder: Path) -> None:
    clock = Hand()
    with controller(clock, folder) as provider:
        (node,) = launch(provider, 1)
        path = provider.host.folder(node.node_id) / "node.json"
        process = agent(provider, node)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pid": None}))
    with controller(clock, folder) as provider:
        (found,) = provider.nodes("me")
        assert found.end_cause is EndCause.FAILED
        wait_until_gone(process)


def test_bad_options_are_named(tmp_path: Path) -> None:
    common = {"market": market(), "machines": Nothing(), "mode": "process"}
    for options, word in (
        ({}, "runtime"),
        ({"runtime": Nothing()}, "state_dir"),
        ({"runtime": Nothing(), "state_dir": tmp_path}, "store"),
        ({"speed": 3}, "speed"),
        (
            {"runtime": Nothing(), "state_dir": tmp_path, "store": tmp_path, "launcher": "x"},
            "launcher",
        ),
    ):
        with pytest.raises(BadRequestError, match=word):
            connect(Hand(), {**common, **options})
