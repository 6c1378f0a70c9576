"""A node's boot, run for real against a bucket and a metadata server over HTTP."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from costopt.controller.payload import upload_payload
from costopt.domain.errors import BadRequestError
from costopt.domain.runtime import Payload, StoredFile
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Gang
from costopt.store import open_store
from costopt_gcp import boot
from costopt_gcp.bootstrap import startup_script
from tests.support.aws.fake_systemctl import stop
from tests.support.fake_gcs import FakeGcs
from tests.support.gcp.instance_processes import Body
from tests.support.live_run import PATIENCE_S, wait_until
from tests.support.market_fixtures import training_job
from tests.support.object_stores import served

NODE = "costopt-0123-0"
STORE = "gs://runs/costopt"
MAX_BYTES = 256 * 1024
EMPTY = Payload(
    job="job",
    store=STORE,
    wheel=StoredFile("w/costopt_spot-1-py3-none-any.whl", "0" * 64, 1),
    bundle=StoredFile("b/bundle.tar.gz", "1" * 64, 1),
    requirements=("obstore==0.12",),
)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with served(FakeGcs(("runs",))) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        yield url


@pytest.fixture
def body(storage: str, tmp_path: Path) -> Iterator[Body]:
    body = Body(NODE, tmp_path / "node", storage)
    yield body
    for name in ("costopt-agent.pid", "costopt-poweroff.pid"):
        stop(body.disk / "units" / name)
    body.metadata.stop()


@pytest.fixture
def payload(storage: str, tmp_path: Path) -> Payload:
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text("print('hello')")
    return upload_payload(replace(training_job(), workdir=str(work)), open_store(STORE), STORE)


def test_a_node_comes_up_and_its_agent_answers(body: Body, payload: Payload) -> None:
    script = startup_script(payload, notice_s=120)
    assert body.boot(script).wait(PATIENCE_S) == 0, body.log()
    mailbox = Mailbox(open_store(payload.store), "job")
    wait_until(lambda: mailbox.heartbeat(NODE) is not None, "heartbeat")
    unit = (body.disk / "units" / "costopt-agent.service").read_text()
    (workdir,) = (body.disk / "opt").glob("job-*")
    assert (workdir / "train.py").read_text() == "print('hello')"
    assert f'"--workdir" "{workdir}"' in unit
    assert '"--notices" "gcp:120"' in unit
    assert "of-the-node" not in unit
    assert body.boot(script).wait(PATIENCE_S) == 0, body.log()
    calls = (body.disk / "units" / "calls").read_text().splitlines()
    agent = [call for call in calls if "timer" not in call]
    assert calls.count("restart costopt-poweroff.timer") >= 2
    assert [call.split()[0] for call in agent] == [
        "daemon-reload", "daemon-reload", "enable", "restart", "enable", "start",
    ]  # fmt: skip


def test_a_file_that_is_not_what_it_should_be_is_refused(body: Body, payload: Payload) -> None:
    mailbox = Mailbox(open_store(payload.store), "job")
    mailbox.post_gang(Gang("job", 3, (NODE, "other"), ("python",), ".", 0.0))
    open_store(payload.store).put(payload.bundle.key, b"something else")
    assert body.boot(startup_script(payload, notice_s=30)).wait(PATIENCE_S) != 0
    (failure,) = mailbox.failures()
    assert (failure.node_id, failure.generation, failure.exit_code) == (NODE, 3, 127)
    assert "has digest" in failure.message
    assert "poweroff" in (body.disk / "units" / "calls").read_text()


def test_the_script_is_small_holds_no_secrets_and_is_always_the_same() -> None:
    script = startup_script(EMPTY, notice_s=30)
    assert script == startup_script(EMPTY, notice_s=30)
    assert len(script.encode()) < MAX_BYTES
    assert "secret" not in script.lower().replace('"--secrets"', "")
    ast.parse(script, feature_version=(3, 8))


def test_only_a_bucket_of_cloud_storage_reaches_nodes() -> None:
    with pytest.raises(BadRequestError, match="s3://runs/a"):
        startup_script(replace(EMPTY, store="s3://runs/a"), notice_s=30)


def test_gpus_are_counted_by_what_the_bus_shows(tmp_path: Path) -> None:
    for name, vendor, kind in (
        ("a", "0x10de", "0x030200"),
        ("b", "0x10de", "0x040300"),
        ("c", "0x1af4", "0x020000"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")
    (tmp_path / "d").mkdir()
    assert [boot.is_gpu(tmp_path / each) for each in "abcd"] == [True, False, False, False]
