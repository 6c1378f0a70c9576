"""Every table of the command line fits 100 columns, with names of pools whole."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from costopt.checkpoint.commit import Committer, SaveRequest
from costopt.checkpoint.repository import CheckpointRepository
from costopt.cli.main import cli
from costopt.domain.control import Scope
from costopt.domain.events import DecisionMade, Event
from costopt.domain.market import Pool
from costopt.domain.policy import CarbonSignal
from costopt.energy.carbon import CarbonHistory
from costopt.energy.carbon_files import write_carbon
from costopt.ledger.sql_ledger import open_sqlite_ledger
from costopt.market.history_file import write_history
from costopt.render.text_table import MAX_WIDTH, text_width
from tests.support import daemon_api
from tests.support.market_fixtures import T0, market, pool_history
from tests.support.price_lists import serve_price_lists
from tests.support.sample_run import sample_events

LONG = "gcp/northamerica-northeast1/northamerica-northeast1-a/a3-highgpu-8g"
POOLS = (f"{LONG}/spot", f"{LONG}/on_demand", f"{LONG.replace('-8g', '-1g')}/flex_start")
POOL_NAME = re.compile(r"(aws|gcp)/([\w-]+/)?[\w*-]+/[\w.-]+/(spot|on_demand|flex_start)")
JOB_NAME = "llama-3-8b-continued-pretraining"
JOB = """\
name: llama-3-8b-continued-pretraining
work: {amount: 3600, unit: samples}
deadline: 4h
resources: {gpu_models: [H100], min_nodes: 1, max_nodes: 4}
throughput: {points: [{gpu: H100, units_per_s: 30}]}
checkpoint: {uri: checkpoints, size_gib: 1, save: 60s, restore: 60s, interval: 30m}
startup: 60s
budget: {usd: 1000}
"""
BUILT_IN = "job.yaml --policies cheapest,greenest,on-demand"
LOCAL = {
    "plan": ("plan job.yaml --explain", "plan job.yaml --market market.parquet --explain"),
    "what-if": (f"what-if {BUILT_IN}", f"what-if {BUILT_IN} --deadlines 3h,30h --capacity "
                "both,spot,on_demand --market market.parquet"),
    "diff": ("diff base head --market market.parquet",),
    "run": (),  # as status JOB
    "backtest": ("backtest job.yaml --market market.parquet --policies cheapest,deadline-first "
                 "--starts 2 --deadlines 3h,4h --by deadline --jobs 1",),
    "status": ("status", f"status {JOB_NAME}"),
    "events": ("events", f"events {JOB_NAME}"),
    "report": (f"report {JOB_NAME}",),
    "explain": (f"explain {JOB_NAME}", f"explain {JOB_NAME} last"),
    "checkpoints list": ("checkpoints list checkpoints",),
    "checkpoints verify": ("checkpoints verify checkpoints",),
    "catalog": ("catalog", "catalog --regions", "catalog --region northamerica-northeast1"),
    "market show": ("market show market.parquet",),
    "fleet workloads show": ("fleet workloads show jobs.csv",),
    "fleet replay": ("fleet replay --workload jobs.csv --cluster cluster.yaml",),
    "fleet size": ("fleet size --workload jobs.csv --cluster cluster.yaml --policy easy",),
    "carbon show": ("carbon show carbon.parquet",),
    "validate": ("validate job.yaml broken.yaml",),
    "doctor": ("doctor",),
    "reconcile": ("reconcile --market market.parquet",),
    "stop": ("stop --all --within 0s --state-dir .",),
}  # fmt: skip
OF_DAEMON = {
    "status of a daemon": "status",
    "status": "status one",
    "daemon approve": "daemon approve",
    "daemon token list": "daemon token list",
}


def _lengthened(event: Event) -> Event:
    """The event in a pool of a long name, with what else was weighed there."""
    if isinstance(event, DecisionMade):
        choices = tuple((f"2 × {pool}", 412.25, "ends 1.1 times an hour") for pool in POOLS)
        return replace(event, targets=((POOLS[0], 2), (POOLS[2], 1)), alternatives=choices)
    named: Any = event
    return replace(named, pool=POOLS[0]) if hasattr(event, "pool") else event


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job, a market, carbon intensities, checkpoints and a ledger, in pools of long names."""
    place = tmp_path_factory.mktemp("tables")
    (place / "job.yaml").write_text(JOB)
    (place / "broken.yaml").write_text(JOB.replace("deadline: 4h", "deadlin: 4h"))
    for side, amount in (("base", "3600"), ("head", "7200")):
        (place / side / "jobs").mkdir(parents=True)
        changed = JOB.replace("amount: 3600", f"amount: {amount}")
        (place / side / "jobs" / f"{JOB_NAME}.yaml").write_text(changed)
    pools = [Pool.parse(f"{LONG}/{kind}") for kind in ("spot", "on_demand")]
    pools += [Pool.parse(str(pool).replace("1-a/", "1-b/")) for pool in pools]
    histories = [pool_history(pool, [(0, 9, 31.41)], 8 * 3600) for pool in pools]
    write_history(market(*histories, tick_s=600.0), place / "market.parquet")
    submitted = "".join(f"{day},tenant-{day},2026-03-{day + 1:02},9e5,8\n" for day in range(30))
    (place / "jobs.csv").write_text(f"job_id,tenant,submit_at,duration_s,gpus\n{submitted}")
    nodes = "[{count: 16, gpus: 8}]"
    (place / "cluster.yaml").write_text(f"kind: cluster\nname: lab\nnodes: {nodes}\n")
    write_carbon(
        CarbonHistory(T0, {"US-MIDA-PJM": (1.0,)}, CarbonSignal.AVERAGE, "test"),
        place / "carbon.parquet",
    )
    committer = Committer(CheckpointRepository.open(str(place / "checkpoints")), 1)
    labels = (("loss", "0.25"), ("tokens", "1200000000"))
    for step in (1000, 2000):
        files = {"state.bin": memoryview(b"weights")}
        committer.commit(SaveRequest(step, 1, 0.0, files, labels))
    with open_sqlite_ledger(place / "ledger.sqlite") as ledger:
        ledger.append(*map(_lengthened, sample_events(JOB_NAME)))
    return place


def _tables(path: str, group: click.Group) -> Iterator[str]:
    """The commands that print a table, by their words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _tables(f"{path}{name} ", command)
        if any(each.name == "output" for each in command.params):
            yield f"{path}{name}"


def _assert_fits(text: str) -> None:
    """No line is too long; no pool's name lacks its beginning or its end."""
    assert [line for line in text.splitlines() if len(line) > MAX_WIDTH] == []
    for word in (each.strip(",;:()=.") for each in text.split()):
        if re.match(r"(aws|gcp)/.*/", word) or re.search(r"/(spot|on_demand|flex_start)$", word):
            assert POOL_NAME.fullmatch(word), word


def test_each_command_with_a_table_is_tried_here() -> None:
    assert isinstance(cli, click.Group)
    # test_carbon_now.py, test_array_run.py, test_bill.py and test_setup.py hold the width of the
    # other ones.
    elsewhere = {"export bill", "catalog update", "carbon now", "setup"}
    assert set(_tables("", cli)) == {*LOCAL, *OF_DAEMON, *elsewhere} - {"status of a daemon"}


@pytest.mark.parametrize("command", [each for group in LOCAL.values() for each in group])
def test_a_table_fits(folder: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(cli, command.split(), env={"COSTOPT_STATE_DIR": "."})
    assert done.exit_code == (2 if "broken" in command else 0), done.stderr
    assert done.stdout
    _assert_fits(done.stdout + done.stderr)


def test_the_tables_of_a_daemon_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_api, "POOL", Pool.parse(POOLS[1]))
    with daemon_api.served(tmp_path) as daemon:
        daemon.token(Scope.READ)
        env = {"COSTOPT_SERVER": f"unix:{daemon.socket_path}", "COSTOPT_TOKEN": ""}
        for command in OF_DAEMON.values():
            done = CliRunner().invoke(cli, command.split(), env=env)
            assert done.exit_code == 0, done.stderr
            _assert_fits(done.stdout + done.stderr)


def test_the_table_of_fetched_price_lists_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with serve_price_lists() as server:
        done = CliRunner().invoke(cli, ["catalog", "update", "--mirror", server.url])
    assert done.exit_code == 0, done.stderr
    _assert_fits(done.stdout)


def test_wide_shows_every_column_and_a_terminal_that_is_narrower_breaks_no_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    command = ["plan", "job.yaml", "--market", "market.parquet"]
    narrow, wide = (CliRunner().invoke(cli, [*command, *more]) for more in ([], ["--wide"]))
    added = next(line for line in narrow.stdout.splitlines() if line.startswith("--wide adds: "))
    assert "Price age" in added
    assert "--wide" not in wide.stdout
    assert max(map(len, wide.stdout.splitlines())) > MAX_WIDTH

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "60")
    assert text_width(Terminal()) == 60
    monkeypatch.setenv("COLUMNS", "200")
    assert text_width(Terminal()) == text_width(io.StringIO()) == MAX_WIDTH
