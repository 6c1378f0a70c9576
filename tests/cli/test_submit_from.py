"""Jobs of a deployment: from a bucket to a real daemon, over its socket."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from costopt.cli import jobs as command
from costopt.cli.main import cli
from costopt.client.client import DaemonUnreachableError
from costopt.domain.object_store import ObjectStore
from costopt.store import open_store
from tests.support.daemon_api import JOB, Served, served
from tests.support.errors import failure
from tests.support.object_stores import served_gcs

STORE = "gs://bucket/deployed"
FILES = {"train.py": b"print()", "data/.a b": b"x", "data/__init__.py": b""}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with served_gcs("bucket") as (url, _):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        yield open_store(STORE)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as each:
        yield each


def deploy(store: ObjectStore, name: str, **changed: object) -> None:
    """As the Terraform modules do."""
    keys = {path: f"files/{number}" for number, path in enumerate(FILES)}
    for path, key in keys.items():
        store.put(f"{name}/{key}", FILES[path])
    reported = {
        "document": JOB.format(name=name),
        "policy": "balanced",
        "priority": 3,
        "files": keys,
    }
    store.put(f"{name}/job.json", json.dumps(reported | changed).encode())


def submit_from(folder: Path, *arguments: str) -> Result:
    env = {"COSTOPT_SERVER": f"unix:{folder / 'daemon.sock'}", "COSTOPT_TOKEN": ""}
    asked = ["submit", "--from", STORE, "--into", str(folder / "deployed"), *arguments]
    return CliRunner().invoke(cli, asked, env=env)


def test_each_job_is_submitted_once_with_its_files(
    store: ObjectStore, daemon: Served, tmp_path: Path
) -> None:
    deploy(store, "a")
    deploy(store, "b", files={}, policy="kind: policy\nversion: 1\nname: mine\n")
    done = submit_from(tmp_path)
    assert (done.exit_code, done.stdout) == (0, "a\nb\n"), done.stderr
    known = daemon.registry.submission("a")
    assert known is not None
    assert known.priority == 3
    folder = Path(known.workdir)
    assert {p: (folder / p).read_bytes() for p in FILES} == FILES
    mine = daemon.registry.submission("b")
    assert mine is not None
    assert "name: mine" in mine.policy_document
    assert list(Path(mine.workdir).iterdir()) == []
    again = submit_from(tmp_path)
    assert (again.exit_code, again.stdout) == (0, "")
    assert len(daemon.registry.submissions()) == 2 + len(("one", "two"))


def test_files_of_a_known_job_are_fetched_again_where_they_are_gone_and_else_left(
    store: ObjectStore, daemon: Served, tmp_path: Path
) -> None:
    deploy(store, "a")
    assert submit_from(tmp_path).exit_code == 0
    train = tmp_path / "deployed" / "a" / "train.py"
    train.write_text("changed")
    assert submit_from(tmp_path).exit_code == 0
    assert train.read_text() == "changed"
    shutil.rmtree(tmp_path / "deployed")
    assert submit_from(tmp_path).exit_code == 0
    assert train.read_bytes() == FILES["train.py"]


def test_what_is_refused_is_reported_and_keeps_no_other_out(
    store: ObjectStore, daemon: Served, tmp_path: Path
) -> None:
    deploy(store, "a", document=JOB.format(name="a").replace("amount: 100", "amount: 1e9"))
    deploy(store, "b", files={"train.py": "files/7"})
    deploy(store, "c")
    done = submit_from(tmp_path)
    assert (done.exit_code, done.stdout) == (3, "c\n")
    assert "error: a: " in done.stderr
    assert "error: b: " in done.stderr
    assert "train.py" in done.stderr
    assert not (tmp_path / "deployed" / "b").exists()


@pytest.mark.parametrize("wrong", [{"files": {"../x": "files/0"}}, {"files": 1}, {"priority": "x"}])
def test_what_no_deployment_writes_is_refused(
    store: ObjectStore, daemon: Served, tmp_path: Path, wrong: dict[str, object]
) -> None:
    deploy(store, "a", **wrong)
    done = submit_from(tmp_path)
    assert done.exit_code == 1
    assert failure(done).code == "not_a_deployment"


def test_a_daemon_that_starts_is_waited_for(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(store, "a")
    at_once = submit_from(tmp_path)
    assert at_once.exit_code == 1
    assert isinstance(failure(at_once), DaemonUnreachableError)
    with ExitStack() as held:
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            held.enter_context(served(tmp_path))

        monkeypatch.setattr(
            command, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: float(len(slept)))
        )
        done = submit_from(tmp_path, "--patience", "1m")
    assert (done.exit_code, done.stdout) == (0, "a\n"), done.stderr
    assert len(slept) == 1
