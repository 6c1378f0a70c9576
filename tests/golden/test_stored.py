"""What is stored and sent: events, messages, checkpoints, learned state, tables, files."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

from pyarrow.parquet import read_schema
from torch import nn
from torch.optim import SGD

from costopt.backtesting.results_file import open_results_file
from costopt.backtesting.trial import Score
from costopt.checkpoint.manifest import CheckpointName, Manifest, encode_abandoned
from costopt.checkpoint.repository import MANIFEST, WRITER, CheckpointRepository, Head
from costopt.controller.learned_state import LearnedState
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.events import EVENT_TYPES
from costopt.domain.history import MarketHistory
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.domain.policy import CarbonSignal
from costopt.energy.carbon import CarbonHistory
from costopt.energy.carbon_files import write_carbon
from costopt.ledger import codec
from costopt.ledger.dialects import POSTGRES_MIGRATIONS
from costopt.ledger.sql_ledger import open_sqlite_ledger
from costopt.market.hazard import LearnedHazard
from costopt.market.history_file import write_history
from costopt.market.lifetime import AgeRates, LifetimeModel
from costopt.protocol import membership
from costopt.protocol.mailbox import Mailbox, MembershipEndpoint
from costopt.protocol.membership import MembershipAddress
from costopt.protocol.messages import CommandFailure, Gang, Heartbeat, Rendezvous
from costopt.protocol.node_logs import LogPosition, NodeLog
from costopt.protocol.trainer_files import (
    RejectedCheckpoint,
    SavedCheckpoint,
    StopNotice,
    TrainerEnv,
    TrainerStatus,
)
from costopt.registry.registry import open_registry
from costopt.store.folder import FileStore
from costopt.train.group import RankGroup
from costopt.train.recipe import run_recipe
from costopt.train.recipe_check import RecipeCheck
from costopt.train.run_state import ExactnessGuarantee, RunState, TrainingState
from tests.support.golden import AT, check, example
from tests.support.market_fixtures import T0, pool_history

POOL = Pool("aws", "us-east-1", "us-east-1a", "p3.2xlarge", CapacityType.SPOT)


def test_events() -> None:
    found = {}
    for event_type in EVENT_TYPES:
        event = example(event_type)
        line = json.loads(codec.encode(event))
        assert codec.decode(json.dumps(line)) == event
        found[line["kind"]] = line
    assert len(found) == len(EVENT_TYPES)
    check("events", found)


def test_messages(tmp_path: Path) -> None:
    check(
        "messages",
        {
            "object store": _mailbox(tmp_path / "store"),
            "membership": _membership(),
            "files on a node": _node_files(tmp_path),
            "trainer environment": example(TrainerEnv).variables(),
        },
    )


def _mailbox(folder: Path) -> dict[str, Any]:
    mailbox = Mailbox(FileStore(folder), "JOB")
    mailbox.post_gang(example(Gang))
    mailbox.post_rendezvous(example(Rendezvous))
    mailbox.post_membership(example(MembershipEndpoint))
    mailbox.post_heartbeat(example(Heartbeat))
    mailbox.request_drain("text")
    mailbox.post_checkpoint(example(SavedCheckpoint))
    mailbox.post_rejected_checkpoint(example(RejectedCheckpoint))
    mailbox.post_failure(example(CommandFailure))
    NodeLog(mailbox.store, "JOB", "text").append(LogPosition(1, 2, 3), b'"text"', 4, 5)
    return {key: json.loads(mailbox.store.get(key) or b"") for key in mailbox.store.keys("")}


def _membership() -> dict[str, Any]:
    kinds = get_args(membership.FromTrainer) + get_args(membership.ToTrainer)
    lines = [membership.encode(example(kind)) for kind in kinds]
    assert [membership.decode(line) for line in lines] == [example(kind) for kind in kinds]
    return {fields["kind"]: fields for fields in map(json.loads, lines)}


def _node_files(folder: Path) -> dict[str, Any]:
    writers = {
        "trainer status": TrainerStatus,
        "stop notice": StopNotice,
        "membership address": MembershipAddress,
    }
    for name, kind in writers.items():
        example(kind).write(folder / name)
    return {name: json.loads((folder / name).read_bytes()) for name in writers}


def test_checkpoints(tmp_path: Path) -> None:
    manifest = example(Manifest)
    documents = {
        "HEAD": example(Head).encode(),
        "manifest of a whole checkpoint": replace(manifest, delta=None, shards=None).encode(),
        "manifest of a delta": replace(manifest, shards=None).encode(),
        "manifest of a sharded checkpoint": replace(manifest, delta=None).encode(),
        "manifest of a sharded delta": manifest.encode(),
        "mark of an abandoned save": encode_abandoned("reason"),
    }
    place = CheckpointRepository(FileStore(tmp_path), str(tmp_path))
    name = CheckpointName(generation=1, step=2, attempt=3)
    place.pin_base(name, "base")
    check(
        "checkpoints",
        {
            **{what: _lines(document) for what, document in documents.items()},
            "training state": sorted(_run_state().capture()),
            "names": [str(name), MANIFEST, WRITER, *place.store.keys("")],
        },
    )


def _run_state() -> RunState:
    model = nn.Linear(1, 1)
    optimizer = SGD(model.parameters())
    parts = TrainingState(model, optimizer, None)
    recipe = RecipeCheck(run_recipe(model, optimizer), "refuse", optimizer, None, {})
    guarantee = ExactnessGuarantee()
    return RunState(parts, group=RankGroup(), guarantee=guarantee, conditions={}, recipe=recipe)


def _lines(document: bytes) -> dict[str, Any]:
    checksum, body = document.decode().splitlines()
    return {"checksum": checksum, "body": json.loads(body)}


def test_learned(tmp_path: Path) -> None:
    lifetimes = LifetimeModel(AgeRates((0.0, 1.0), (0.1, 0.2), (0.3, 0.4)))
    hazards = LearnedHazard({})
    price = Estimate(1.0, 1.0, 1.0, Basis.PRIOR, "test")
    for hours, nodes in enumerate((1, 0, 1)):
        now = AT + timedelta(hours=hours)
        lifetimes.observe((str(POOL), 1), "aws/us-east-1", nodes > 0, now)
        hazards.observe([Offer(POOL, price, None, nodes)], now)
    hazards.record_interruption(POOL, AT)
    path = tmp_path / "learned.json"
    assert LearnedState(path, lifetimes, hazards).save(AT + timedelta(hours=3)) is None
    check("learned", json.loads(path.read_bytes()))


def test_tables(tmp_path: Path) -> None:
    ledger, registry = tmp_path / "ledger.sqlite", tmp_path / "registry.sqlite"
    open_sqlite_ledger(ledger).close()
    open_registry(registry).close()
    postgres = [_words(line) for step in POSTGRES_MIGRATIONS.steps for line in step]
    check(
        "tables",
        {
            "ledger": _schema(ledger),
            "registry": _schema(registry),
            "ledger in PostgreSQL": postgres,
        },
    )


def _schema(path: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        tables = {name: _words(sql) for name, sql in found}
        marks = {
            pragma: connection.execute(f"PRAGMA {pragma}").fetchone()[0]
            for pragma in ("application_id", "user_version")
        }
    return {**tables, **marks}


def _words(sql: str) -> str:
    return " ".join(sql.split())


def test_files(tmp_path: Path) -> None:
    market, carbon, results = (tmp_path / name for name in ("market", "carbon", "results"))
    write_history(
        MarketHistory("name", {POOL: pool_history(POOL, [(0, 1, 2.0)], 60)}, 60, ""), market
    )
    write_carbon(CarbonHistory(T0, {"zone": (1.0,)}, CarbonSignal.AVERAGE, "source"), carbon)
    with open_results_file(results) as file:
        file.add("key", example(Score))
    check(
        "files",
        {
            "market history": _columns(market),
            "carbon history": _columns(carbon),
            "backtest results": [json.loads(line) for line in results.read_bytes().splitlines()],
        },
    )


def _columns(path: Path) -> dict[str, Any]:
    schema = read_schema(path)
    metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    return {"columns": {field.name: str(field.type) for field in schema}, "metadata": metadata}
