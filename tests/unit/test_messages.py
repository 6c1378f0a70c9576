"""The exact wording of representative messages: the one place that a copy-edit touches.

Each is produced by the call that a user's mistake leads to; other tests assert codes and subjects.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from costopt.catalog import load_catalog
from costopt.checkpoint.history import CheckpointHistory
from costopt.cli.main import cli
from costopt.client.client import parse_address
from costopt.domain.control import DesiredState, Scope, Submission
from costopt.domain.errors import CostoptError
from costopt.ledger.sql_ledger import open_sqlite_ledger
from costopt.market.history_file import read_history
from costopt.registry.registry import SqlRegistry, open_registry
from costopt.spec import load_account, load_job, load_policy, parse_duration_s, parse_instant
from costopt.store.address import StoreAddress

NOW = datetime(2026, 5, 1, 8, tzinfo=UTC)
JOB = {
    "name": "llm",
    "work": "{amount: 400, unit: steps}",
    "deadline": "72h",
    "throughput": "{points: [{gpu: T4, gpus: 2, units_per_s: 9.5}]}",
    "checkpoint": "{uri: saves}",
}

MISTAKES_IN_JOBS = {
    ("work", "{amount: -1, unit: steps}"): "2:16: work.amount: expected greater than 0, got -1",
    ("work", "{amount: 4, unit: step}"): (
        "2:25: work.unit: 'step' is not allowed; expected 'steps', 'samples', 'tokens', "
        "'tasks', 'epochs' or 'percent'; did you mean 'steps'?"
    ),
    ("work", "{amount: 4}"): "2:7: work.unit: is missing: in what it is counted",
    ("work", "4"): (
        "2:7: work: expected an amount and its unit, such as 10 epochs or 2B tokens, got 4"
    ),
    ("deadline", "2026-05-01T07:00:00Z"): (
        "3:11: deadline: 2026-05-01T07:00:00Z is in the past (now is 2026-05-01T08:00:00Z)"
    ),
    ("deadline", "2026-06-01T07:00:00.5"): (
        "3:11: deadline: the time zone is missing; expected a time in ISO 8601 with its "
        "zone, such as 2026-05-01T08:00:00Z, got '2026-06-01T07:00:00.5'"
    ),
    ("deadline", "soon"): (
        "3:11: deadline: expected a duration such as 90m, 72h or 1d 12h, or a number of "
        "seconds, got 'soon'"
    ),
    ("deadline", "9999-12-31T23:59:59Z"): (
        "3:11: deadline: expected at most ten years after the start, got 9999-12-31T23:59:59Z"
    ),
    ("checkpoint", "{uri: ftp://x}"): (
        "5:19: checkpoint.uri: the scheme 'ftp' is not known; expected a path, file://, "
        "s3://, gs://"
    ),
    ("checkpoint", "{uri: file://x}"): (
        "5:19: checkpoint.uri: expected an absolute path after file://, got 'file://x'"
    ),
    ("checkpoint", "{uri: x, intervall: 1}"): (
        "5:22: checkpoint.intervall: unknown key; did you mean 'interval'?"
    ),
    ("checkpoint", "{uri: c, region: aws/us-esat-1}"): (
        "5:30: checkpoint.region: the region 'aws/us-esat-1' is not in the catalogue; did "
        "you mean 'aws/us-west-1' or 'aws/us-east-1' or 'aws/us-west-2'?; costopt catalog "
        "--regions lists them all"
    ),
    ("resources", "{gpu_models: [H1000]}"): (
        "6:26: resources.gpu_models[0]: the GPU model 'H1000' is not in the catalogue; did "
        "you mean 'H100' or 'V100' or 'H200'?"
    ),
    ("resources", "{min_nodes: 4, max_nodes: 2}"): (
        "6:38: resources.max_nodes: 2 is below min_nodes, 4"
    ),
    ("phases", "[{name: a, share: 0.5}]"): (
        "6:9: phases: the shares sum to 0.5; they must sum to 1"
    ),
    ("throughput", "{}"): (
        "4:13: throughput: expected points, or flops_per_unit with mfu; or beside it takes: {per: "
        "epoch, time: 40m, on: 1xA100}"
    ),
    ("throughput", "{mfu: 0.4}"): (
        "4:13: throughput: flops_per_unit and mfu are given together or not at all"
    ),
    ("run", "[]"): "6:6: run: expected at least one entry",
    ("run", "python 'x"): (
        '6:6: run: cannot be split into words: no closing quotation, got "python \'x"'
    ),
    ("env", "{A=B: x}"): "6:7: env.A=B: a variable's name holds neither '=' nor a null byte",
    ("nmae", "x"): "6:1: nmae: unknown key; did you mean 'name' or 'image'?",
    ("name", "a b"): (
        "1:7: name: expected letters, digits, '.', '_' and '-', at most 63, the first no "
        "sign, got 'a b'"
    ),
}
MISTAKES_IN_POLICIES = {
    "objective: {usd: 0}": "2:12: objective: every weight is 0, so there is nothing to minimize",
    "risk: {on_tiem: 1}": "2:8: risk.on_tiem: unknown key; did you mean 'on_time'?",
    "limits: {capacity_types: [spott]}": (
        "2:27: limits.capacity_types[0]: 'spott' is not allowed; expected 'spot', "
        "'on_demand', 'reserved' or 'flex_start'; did you mean 'spot'?"
    ),
    "limits: {max_zone_share: 1.5}": (
        "2:26: limits.max_zone_share: expected less than or equal to 1, got 1.5"
    ),
    "rules: [{name: a, trigger: slack, low: 2, high: 1, then: {max_nodes: 1}}]": (
        "2:9: rules[0]: low, 2, is above high, 1"
    ),
    "rules: [{name: a, trigger: slack, low: 1, high: 2, then: {}}]": (
        "2:58: rules[0].then: names no limit, so the rule changes nothing"
    ),
    "name: y": "2:1: name: appears twice; the first is on line 1",
}
MISTAKES_IN_ACCOUNTS = {
    "quotas: [{name: a}]": (
        "1:10: quotas[0]: limits nothing; give max_nodes, max_gpus, max_vcpus, max_kw or "
        "max_usd_per_hour"
    ),
    "tenants: [{name: a}, {name: a}]": "1:29: tenants[1].name: 'a' names two tenants",
    "tenants: [{name: red, prefixes: [/srv/red]}]": (
        "1:34: tenants[0].prefixes[0]: expected s3://bucket/prefix or gs://bucket/prefix, "
        "got '/srv/red'"
    ),
    "providers: {aws: {regions: [us-east-1], queus: {}}}": (
        "1:41: providers.aws.queus: unknown key; did you mean 'queues'?"
    ),
    "providers: {aws: {}}": "1:18: providers.aws.regions: is missing",
}
MISTAKES_IN_COMMANDS = {
    "statsu": (
        "error: there is no command 'statsu'; did you mean 'status'?\n  → see costopt --help\n"
    ),
    "schema --foo": "error: No such option '--foo'.\n  → see costopt schema --help\n",
    "status --state-dir none": (
        "error: nothing has run in none: there is no ledger none/ledger.sqlite\n  → name the "
        "state directory of a run (--state-dir) or a daemon (--server)\n"
    ),
    "plan nope.yaml": "error: nope.yaml: cannot be read: no such file or directory\n",
    "run nope.yaml": (
        "error: nowhere to run: --market sample would do, which simulates a cloud; or give "
        "--account FILE with the providers to rent from\n  → see costopt run --help\n"
    ),
    "status --server ftp://x": (
        "error: 'ftp://x' is not a daemon's address\n  → expected unix:PATH, http://HOST:PORT or https://HOST\n"
    ),
    "fleet replay": "error: Missing option '--workload'.\n  → see costopt fleet replay --help\n",
    "checkpoints verify nope.yaml": (
        "error: nope.yaml: there is no such file or folder\n  → check the path\n"
    ),
    "market show nope.parquet": (
        "error: market file nope.parquet does not exist\n"
        "  → check the path, or use sample, which costopt ships\n"
    ),
    "carbon show nope.parquet": (
        "error: carbon file nope.parquet does not exist\n  → check the path\n"
    ),
}
MISTAKES_IN_CALLS = {
    "duration": "expected a duration such as 90m, 72h or 1d 12h, or a number of seconds",
    "long duration": "expected at most ten years",
    "repeated unit": (
        "h is given twice; expected a duration such as 90m, 72h or 1d 12h, or a number of seconds"
    ),
    "instant": "expected a time in ISO 8601 with its zone, such as 2026-05-01T08:00:00Z",
    "instant without zone": (
        "the time zone is missing; expected a time in ISO 8601 with its zone, such as "
        "2026-05-01T08:00:00Z"
    ),
    "policy name": (
        "no policy is named 'balancd', and no such file exists; did you mean 'balanced'?\n  "
        "→ use one of cheapest, balanced, greenest, deadline-first, on-demand, or the path "
        "of a policy file"
    ),
    "instance type": (
        "gcp has no instance type 'p5.48xlarge' in the catalogue\n  → costopt catalog lists "
        "them all"
    ),
    "store scheme": (
        "'ftp://x/red' is not an address of a known kind of store\n  → write a path, file:///path, "
        "s3://bucket/prefix or gs://bucket/prefix"
    ),
    "store without bucket": (
        "'s3:///red' names no bucket\n  → write a path, file:///path, s3://bucket/prefix or "
        "gs://bucket/prefix"
    ),
    "store with credentials": (
        "an address must not hold credentials\n  → give them in the environment or as the "
        "role of the machine"
    ),
    "store option": (
        "'s3://bucket?colour=blue' has unknown options: colour\n  → s3:// takes endpoint, region"
    ),
    "store key": (
        "'../red' is not a key: it must be a relative path without '..' or hidden parts\n  → "
        "name jobs and nodes with letters, digits, '-', '_' and '.'"
    ),
    "server": "'ftp://x' is not a daemon's address\n  → expected unix:PATH, http://HOST:PORT or https://HOST",
    "server with password": "a daemon's address must not contain a password\n"
    "  → put the token into a file",
    "market file": (
        "market file FOLDER/market.parquet does not exist\n"
        "  → check the path, or use sample, which costopt ships"
    ),
    "ledger": (
        "ledger FOLDER/ledger.sqlite does not exist\n  → check the path; a ledger is made by "
        "the first run that is applied"
    ),
    "ledger is folder": "ledger FOLDER is a folder\n  → name a file inside it",
    "tag": "'a/b' is not a valid tag\n  → use letters, digits, '.', '-' and '_', 100 at most",
    "checkpoint": (
        "'last' is neither a checkpoint nor a tag in FOLDER\n  → `list` shows the names and tags"
    ),
    "submitted twice": (
        "a job named 'llm' was submitted already\n  → give the new one another name"
    ),
    "resumed after cancel": "job 'llm' was cancelled\n  → submit it again under another name",
    "unknown job": "there is no job 'nope'\n  → see `costopt status`",
    "token twice": "a token named 'ci' exists already\n  → revoke it, or choose another",
    "token without scope": "token 'x' allows nothing\n  → name read, submit or admin",
    "tenant's admin": (
        "token 'x' cannot have the scope admin and be bound to tenant 'blue'\n"
        "  → grant it the scope read or submit"
    ),
    "unknown token": "there is no token 'nope'\n  → see `costopt daemon token list`",
}


def job(folder: Path, field: str, value: str) -> None:
    text = "".join(f"{name}: {given}\n" for name, given in (JOB | {field: value}).items())
    path = folder / "job.yaml"
    path.write_text(text)
    load_job(path, NOW)


def policy(folder: Path, line: str) -> None:
    path = folder / "policy.yaml"
    path.write_text(f"name: x\n{line}\n")
    load_policy(path)


def account(folder: Path, line: str) -> None:
    path = folder / "account.yaml"
    path.write_text(f"{line}\n")
    load_account(path)


def registry(folder: Path, use: Callable[[SqlRegistry], object]) -> None:
    job_document, at = "name: llm\n", NOW
    with open_registry(folder / "registry.sqlite") as opened:
        opened.submit(Submission("llm", "default", 0, job_document, "cheapest", "/srv", at, "me"))
        opened.set_desired_state("llm", DesiredState.CANCELLED, "me", at)
        opened.tokens.add("ci", [Scope.READ], "me", at)
        use(opened)


def again(opened: SqlRegistry) -> None:
    known = opened.submission("llm")
    assert known is not None
    opened.submit(known)


CALLS: dict[str, Callable[[Path], object]] = {
    "duration": lambda _: parse_duration_s("5y"),
    "long duration": lambda _: parse_duration_s("11000w"),
    "repeated unit": lambda _: parse_duration_s("1h 1h"),
    "instant": lambda _: parse_instant("tomorrow"),
    "instant without zone": lambda _: parse_instant("2026-05-01T10:00:00"),
    "policy name": lambda _: load_policy("balancd"),
    "instance type": lambda _: load_catalog().get_instance_type("gcp", "p5.48xlarge"),
    "store scheme": lambda _: StoreAddress.parse("ftp://x/red"),
    "store without bucket": lambda _: StoreAddress.parse("s3:///red"),
    "store with credentials": lambda _: StoreAddress.parse("s3://me:secret@bucket"),
    "store option": lambda _: StoreAddress.parse("s3://bucket?colour=blue"),
    "store key": lambda _: StoreAddress.parse("s3://bucket/../red"),
    "server": lambda _: parse_address("ftp://x"),
    "server with password": lambda _: parse_address("http://me:secret@x"),
    "market file": lambda folder: read_history(folder / "market.parquet"),
    "ledger": lambda folder: open_sqlite_ledger(folder / "ledger.sqlite", create=False),
    "ledger is folder": open_sqlite_ledger,
    "tag": lambda folder: CheckpointHistory.open(str(folder)).tag("last", "a/b"),
    "checkpoint": lambda folder: CheckpointHistory.open(str(folder)).verify("last"),
    "submitted twice": partial(registry, use=again),
    "resumed after cancel": partial(
        registry, use=lambda r: r.set_desired_state("llm", DesiredState.RUN, "me", NOW)
    ),
    "unknown job": partial(
        registry, use=lambda r: r.set_desired_state("nope", DesiredState.RUN, "me", NOW)
    ),
    "token twice": partial(registry, use=lambda r: r.tokens.add("ci", [Scope.READ], "me", NOW)),
    "token without scope": partial(registry, use=lambda r: r.tokens.add("x", [], "me", NOW)),
    "tenant's admin": partial(
        registry, use=lambda r: r.tokens.add("x", [Scope.ADMIN], "me", NOW, tenant="blue")
    ),
    "unknown token": partial(registry, use=lambda r: r.tokens.revoke("nope", "me", NOW)),
}


def said_by(folder: Path, call: Callable[[], object]) -> str:
    with pytest.raises((CostoptError, ValueError)) as caught:
        call()
    return str(caught.value).replace(str(folder), "FOLDER")


@pytest.mark.parametrize(("field", "value"), MISTAKES_IN_JOBS)
def test_a_mistake_in_a_job(tmp_path: Path, field: str, value: str) -> None:
    said = said_by(tmp_path, lambda: job(tmp_path, field, value))
    assert said == f"FOLDER/job.yaml:{MISTAKES_IN_JOBS[field, value]}"


@pytest.mark.parametrize("line", MISTAKES_IN_POLICIES)
def test_a_mistake_in_a_policy(tmp_path: Path, line: str) -> None:
    said = said_by(tmp_path, lambda: policy(tmp_path, line))
    assert said == f"FOLDER/policy.yaml:{MISTAKES_IN_POLICIES[line]}"


@pytest.mark.parametrize("line", MISTAKES_IN_ACCOUNTS)
def test_a_mistake_in_an_account(tmp_path: Path, line: str) -> None:
    said = said_by(tmp_path, lambda: account(tmp_path, line))
    assert said == f"FOLDER/account.yaml:{MISTAKES_IN_ACCOUNTS[line]}"


@pytest.mark.parametrize("command", MISTAKES_IN_COMMANDS)
def test_a_mistake_in_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, command.split())
    assert done.exit_code != 0
    assert done.stderr.replace(str(tmp_path), "FOLDER") == MISTAKES_IN_COMMANDS[command]


@pytest.mark.parametrize("name", MISTAKES_IN_CALLS)
def test_a_mistake_in_a_call(tmp_path: Path, name: str) -> None:
    assert said_by(tmp_path, lambda: CALLS[name](tmp_path)) == MISTAKES_IN_CALLS[name]


def test_every_call_has_its_message() -> None:
    assert CALLS.keys() == MISTAKES_IN_CALLS.keys()
