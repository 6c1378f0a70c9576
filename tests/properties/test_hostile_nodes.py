"""Whatever a job's nodes write, other jobs are decided and billed as if they had written nothing,
and the ledger holds what can be read, shown and stored."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costopt.controller.node_logs import FolderLogs, StoreLogs
from costopt.controller.runtime import MailboxRuntime
from costopt.domain.errors import CostoptError, StoreError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.events import Event
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.policy import CarbonSignal, StrategySpec
from costopt.domain.ports import Strategy
from costopt.domain.power import NodePower
from costopt.domain.view import Desired, View
from costopt.engine.cohort import JobTerms
from costopt.ledger.codec import decode, encode
from costopt.ledger.sql_ledger import SqlLedger, open_sqlite_ledger
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import NodeActivity
from costopt.store.folder import FileStore
from costopt.strategies import build
from costopt.views.event import describe_event
from tests.support import engine_fixtures
from tests.support.engine_fixtures import SAFE, SPOT_A, SPOT_B, Scene, always, rules, task
from tests.support.market_fixtures import T0

MAX_EVENT_BYTES = 64 << 10
HOSTILE, GOOD = "hostile", "good"
TICKS = 6

TEXTS = st.text(st.characters(), max_size=30) | st.sampled_from(
    ["\ud800", "\x00", "\x1b[2J", "\u202egpj", "a" * 5000, "../../good/gang", "", "good", "1e999"]
)
NUMBERS = (
    st.integers(-(10**20), 10**20)
    | st.floats()
    | st.sampled_from([1e18, -1e18, 0, -1, 5e-324, 253402300800, float("nan"), float("inf")])
)
FINITE = st.floats(-1e18, 1e18) | st.sampled_from([1e18, -1e18, 0.0, -1.0, 5e-324, 253402300800.0])
"""Of these a message is made that is read: hostile in what it says, not in how."""
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)


def mostly(fields: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Any]:
    """A message of these fields, of which now and then one holds anything."""
    whole = st.fixed_dictionaries({"schema": st.just(1), **fields}, optional=optional)
    names = st.sampled_from([*fields, *optional])
    spoiled = st.builds(lambda each, name, value: {**each, name: value}, whole, names, VALUES)
    return whole | whole | whole | spoiled


METERS = st.fixed_dictionaries(
    {"since": FINITE, "at": FINITE},
    optional={
        "energy_wh": FINITE, "parts": st.just(["gpu"]), "gpus": st.integers(0, 1),
        "training_wh": FINITE, "training_s": FINITE, "gpu_utilization": FINITE,
        "gpu_memory_share": FINITE,
    },
)  # fmt: skip
GPU_HEALTH = st.fixed_dictionaries(
    {"watched_s": FINITE, "busy_s": FINITE},
    optional={
        "ecc_errors": st.none() | st.integers(-(10**18), 10**18), "lost": st.booleans(),
        "remap_failed": st.booleans(), "xids": st.lists(st.integers(-(10**18), 10**18), max_size=9),
    },
)  # fmt: skip
BEATS = mostly(
    {
        "node_id": st.just("{node}"),
        "generation": st.just("{generation}") | st.integers(0, 3),
        "state": st.sampled_from([activity.value for activity in NodeActivity]),
        "at": FINITE,
        "beat": st.integers(0, 9),
    },
    {
        "reported": st.booleans(), "done_units": FINITE, "saved_units": FINITE,
        "units_per_s": FINITE, "resumed_units": FINITE, "message": TEXTS, "guarantee": TEXTS,
        "warning": TEXTS, "interrupts_at": FINITE, "interval_s": FINITE, "interval_reason": TEXTS,
        "step_s": FINITE, "goodput": FINITE, "data_wait_share": FINITE,
        "power_asked_w": FINITE, "power_cap_w": FINITE, "power_message": TEXTS,
        "meters": METERS, "log_path": TEXTS, "snapshots": TEXTS,
        "microbatch_s": FINITE, "gpu_health": GPU_HEALTH,
    },
)  # fmt: skip
SAVES = mostly(
    {"name": TEXTS, "units": FINITE, "uri": TEXTS, "at": FINITE},
    {"size_bytes": st.integers(-(10**18), 10**18), "save_s": FINITE},
)
REFUSED = mostly({"name": TEXTS, "uri": TEXTS, "message": TEXTS}, {})
FAILURES = mostly(
    {
        "node_id": TEXTS, "generation": st.just("{generation}"), "exit_code": st.integers(-9, 255),
        "at": FINITE, "saved_units": FINITE, "message": TEXTS, "log_path": TEXTS,
    },
    {},
)  # fmt: skip
GANGS = mostly(
    {
        "job": TEXTS, "generation": st.integers(0, 3), "formed_at": FINITE,
        "members": st.just(["{node}"]) | st.lists(TEXTS, max_size=4),
        "command": st.lists(TEXTS, max_size=2), "workdir": TEXTS,
        "env": st.lists(st.tuples(TEXTS, TEXTS), max_size=2),
    },
    {"elastic": st.booleans(), "power_cap_w": FINITE},
)  # fmt: skip
NAMES = st.sampled_from(["a", "000000001", "step-1", "é", "two words", "\udcff", "x" * 200])

Write = Callable[[Path, str], None]


def messages(where: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Write]:
    """A message at a place of the hostile job's mailbox."""

    def writes(value: Any, name: str, raw: bytes | None) -> Write:
        def write(mailbox: Path, node_id: str) -> None:
            text = json.dumps(value).replace("{node}", node_id)
            text = text.replace('"{generation}"', str(_generation(mailbox)))
            data = text.encode() if raw is None else raw
            _put(mailbox / where.format(node=node_id, name=name), lambda p: p.write_bytes(data))

        return write

    torn = st.binary(max_size=40) | st.sampled_from([b"[" * 9999, b"9" * 9999, b""])
    return st.builds(writes, values, NAMES, st.none() | st.none() | st.none() | torn)


def _generation(mailbox: Path) -> int:
    """Of the gang that was formed last."""
    with suppress(StoreError):
        gang = Mailbox(FileStore(mailbox.parent.parent), HOSTILE).gang()
        return 1 if gang is None else gang.generation
    return 1


def objects() -> st.SearchStrategy[Write]:
    """Something that is not a file, anywhere in the mailbox."""

    def writes(where: str, kind: str) -> Write:
        def write(mailbox: Path, node_id: str) -> None:
            _put(mailbox / where.format(node=node_id), lambda path: KINDS[kind](path, mailbox))

        return write

    places = (
        "gang.json", "nodes/{node}/heartbeat.json", "nodes/{node}/drain", "nodes", "checkpoints",
        "checkpoints/a.json", "failures/000000001.json", "refused/a.json", "logs/{node}",
        "logs/{node}/000000000000000.000001.000000000000005",
    )  # fmt: skip
    return st.builds(writes, st.sampled_from(places), st.sampled_from(sorted(KINDS)))


def _put(path: Path, make: Callable[[Path], object]) -> None:
    """Where something else is in the way the hostile job has already done its worst there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            path.rename(path.with_name(f"{path.name}-{len(list(path.parent.iterdir()))}"))
        path.unlink(missing_ok=True)
        make(path)
    except OSError:
        return


def _huge(path: Path, _: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)


KINDS: dict[str, Callable[[Path, Path], object]] = {
    "pipe": lambda path, _: os.mkfifo(path),
    "folder": lambda path, _: path.mkdir(),
    "link to the other job": lambda path, mailbox: path.symlink_to(mailbox.parent / GOOD),
    "link to itself": lambda path, _: path.symlink_to(path),
    "link to a device": lambda path, _: path.symlink_to("/dev/zero"),
    "huge file": _huge,
}

BEAT = messages("nodes/{node}/heartbeat.json", BEATS)
MESSAGES = (
    BEAT
    | BEAT
    | BEAT
    | messages("nodes/{name}/drain", VALUES)
    | messages("checkpoints/{name}.json", SAVES)
    | messages("refused/{name}.json", REFUSED)
    | messages("failures/{name}.json", FAILURES)
    | messages("gang.json", GANGS)
    | messages("logs/{node}/000000000000000.000001.{name}", VALUES)
    | objects()
)


POWER = NodePower(500, 1000, 1.0, 400, Basis.MODELLED, 0.1, "test", cpu_w=100.0, other_w=50.0)


class PartedPowers:
    """So that what nodes measure can be used."""

    def node_power(
        self, pool: Pool, carbon_signal: CarbonSignal = CarbonSignal.AVERAGE
    ) -> NodePower:
        return POWER


class Both:
    """The hostile job's nodes are reached through a mailbox, the good one's are simulated."""

    def __init__(self, mailbox: MailboxRuntime, simulated: Any) -> None:
        self._mailbox = mailbox
        self._simulated = simulated

    def __getattr__(self, name: str) -> Any:
        def ask(job: Job, *arguments: Any, **named: Any) -> Any:
            runtime = self._mailbox if job.name == HOSTILE else self._simulated
            return getattr(runtime, name)(job, *arguments, **named)

        return ask


class Recorded:
    """A strategy, and which offers it was shown."""

    def __init__(self, inner: Strategy) -> None:
        self._inner = inner
        self.views: list[View] = []

    def decide(self, view: View) -> Desired:
        self.views.append(view)
        return self._inner.decide(view)


class Town:
    """Two jobs with a policy each, of which one's nodes write what they like while the other
    begins."""

    def __init__(self, folder: Path, ledger: SqlLedger) -> None:
        hostile = replace(task(nodes=(1, 2), name=HOSTILE), run=("true",), workdir=str(folder))
        begins_at = T0 + timedelta(seconds=60 * (TICKS // 2))
        self.good = replace(task(name=GOOD), start_at=begins_at)
        self.folder = folder
        self.ledger = ledger
        self.strategy = Recorded(build(StrategySpec("greedy_spot", {})))
        self.scene = Scene(
            always(SPOT_A, 50, 1.0),
            always(SPOT_B, 50, 2.0),
            always(SAFE, 50, 8.0),
            jobs=[hostile],
            ledger=ledger,
        )
        mailbox = MailboxRuntime(FileStore(folder), self.scene.clock)
        self.scene.cloud.runtime = Both(mailbox, self.scene.cloud.runtime)
        self._restart()

    def live(self, writes: list[Write]) -> list[Event]:
        """What the ledger holds of the good job after some ticks."""
        self.scene.tick()
        for number in range(TICKS):
            nodes = self.scene.living(HOSTILE)
            for write in writes[number::TICKS]:
                write(self.folder / "jobs" / HOSTILE, nodes[0].node_id if nodes else "none")
            if number == TICKS // 2:
                self._restart()
            self.scene.tick()
        return [recorded.event for recorded in self.ledger.events(GOOD)]

    def offers(self) -> list[dict[Pool, tuple[Estimate | None, bool]]]:
        """What the good job was offered: by pool the price, and whether it has room."""
        return [
            {o.pool: (o.price_usd_per_hour, o.nodes_available != 0) for o in view.offers}
            for view in self.strategy.views
            if view.jobs
        ]

    def _restart(self) -> None:
        self.scene.restart().add(self.good, JobTerms(rules("greedy_spot"), self.strategy))


@contextmanager
def town() -> Any:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        (folder / "store").mkdir()
        with (
            patch.object(engine_fixtures, "Powers", PartedPowers),
            open_sqlite_ledger(folder / "ledger.sqlite") as ledger,
        ):
            yield Town(folder / "store", ledger)


def _without_node_numbers(events: list[Event]) -> list[str]:
    """The simulator numbers nodes of all jobs alike."""
    lines = []
    for event in events:
        fields = json.loads(encode(event))
        lines.append(json.dumps({k: v for k, v in fields.items() if not k.startswith("node_id")}))
    return lines


def _check_ledger(ledger: SqlLedger) -> None:
    for recorded in ledger.events():
        line = encode(recorded.event)
        assert len(line) < MAX_EVENT_BYTES
        assert decode(line) == recorded.event
        row = describe_event(recorded.event)
        shown = f"{row.what} {row.detail}"
        shown.encode()
        assert "\x1b" not in shown
        assert "\x00" not in shown


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(MESSAGES, min_size=TICKS, max_size=4 * TICKS))
def test_what_nodes_write_costs_no_other_job_and_no_reader_anything(writes: list[Write]) -> None:
    _check(writes)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(BEAT, min_size=TICKS, max_size=4 * TICKS))
def test_what_nodes_say_in_good_form_costs_no_other_job_anything(writes: list[Write]) -> None:
    _check(writes)


def _check(writes: list[Write]) -> None:
    with town() as quiet:
        expected = _without_node_numbers(quiet.live([]))
        offers = quiet.offers()
    assert any('"NodeLaunched"' in line for line in expected)
    with town() as loud:
        assert _without_node_numbers(loud.live(writes)) == expected
        assert loud.offers() == offers
        busy_w = loud.strategy.views[-1].powers[SPOT_A].busy_w
        assert POWER.idle_w / 2 <= busy_w <= 2 * POWER.busy_w
        _check_ledger(loud.ledger)
        node_id = next((n.node_id for n in loud.scene.living(HOSTILE)), "none")
        for logs in (
            StoreLogs(FileStore(loud.folder)),
            FolderLogs(loud.folder, FileStore(loud.folder)),
        ):
            try:
                logs.read(HOSTILE, node_id, 0).text.encode()
            except CostoptError as error:
                error.message.encode()
