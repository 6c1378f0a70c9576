"""What the daemon needs of its site: files for nodes, and the logs that they write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from costopt.controller.account_site import AccountSiteConfig, PayloadsByJob
from costopt.controller.node_logs import PIECE_BYTES, FolderLogs
from costopt.daemon.loop.payload_preparer import PayloadPreparer
from costopt.domain.account import Account
from costopt.domain.errors import SpecError, StoreError
from costopt.domain.job import Job
from costopt.domain.runtime import Payload, StoredFile
from costopt.protocol.node_logs import LogPosition, NodeLog
from costopt.store.folder import FileStore
from costopt_aws.bootstrap import NodeOptions
from tests.support.engine_fixtures import task
from tests.support.errors import has_code


def test_an_adapter_sees_what_was_uploaded_after_it_was_connected() -> None:
    payloads = PayloadsByJob()
    options = NodeOptions.parse({"payloads": payloads})
    file = StoredFile("key", "digest", 1)
    payloads["job"] = Payload("job", "s3://bucket", file, file, ())
    assert options.payloads["job"].store == "s3://bucket"


def test_an_account_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="names no store"):
        AccountSiteConfig(Account()).connect(tmp_path)


def test_logs_of_an_accounts_nodes_are_read_in_its_store(tmp_path: Path) -> None:
    account = Account(store=str(tmp_path), providers={"aws": {"regions": ["us-east-1"]}})
    site = AccountSiteConfig(account).connect(tmp_path)
    NodeLog(FileStore(tmp_path), "job", "i-1").append(LogPosition(), b"step 1\n", 1, 7)
    assert site.logs.read("job", "i-1", 0).text == "step 1\n"
    for provider in site.providers:
        provider.close()


def test_a_job_is_ready_once_its_files_are_there() -> None:
    failing = {"one"}

    def receive(job: Job) -> Job:
        if job.name in failing:
            raise StoreError("no room")
        return job

    readiness = PayloadPreparer(receive, lambda: None)
    for name in ("one", "two"):
        readiness.request(task(name=name))
    readiness.prepare()
    readiness.join()
    assert (readiness.is_ready("one"), readiness.is_ready("two")) == (False, True)
    assert readiness.error("one") == "no room"
    failing.clear()
    readiness.prepare()
    readiness.join()
    assert not readiness.is_ready("one"), "not before a minute has passed"
    readiness.request(task(name="one"))
    readiness.prepare()
    readiness.join()
    assert readiness.is_ready("one")
    assert readiness.error("one") == ""
    readiness.forget("one")
    assert not readiness.is_ready("one")


def test_logs_of_all_attempts_are_one(tmp_path: Path) -> None:
    node = tmp_path / "n-1"
    node.mkdir()
    for number, text in enumerate(("first\n", "second\n")):
        path = node / f"trainer-{9 - number}.log"
        path.write_text(text)
        os.utime(path, (number, number))
    logs = FolderLogs(tmp_path, FileStore(tmp_path))
    piece = logs.read("job", "n-1", 0)
    assert (piece.text, piece.next_byte) == ("first\nsecond\n", 13)
    assert logs.read("job", "n-1", 8).text == "cond\n"
    assert logs.read("job", "n-1", 13).text == ""


def test_a_long_log_comes_in_pieces(tmp_path: Path) -> None:
    node = tmp_path / "n-1"
    node.mkdir()
    (node / "trainer-1.log").write_text("x" * (PIECE_BYTES + 5))
    logs = FolderLogs(tmp_path, FileStore(tmp_path))
    first = logs.read("job", "n-1", 0)
    assert len(first.text) == PIECE_BYTES
    assert logs.read("job", "n-1", first.next_byte).text == "xxxxx"


@pytest.mark.parametrize("node_id", ["missing", "..", "../n-1", "/etc"])
def test_no_other_file_is_a_log(tmp_path: Path, node_id: str) -> None:
    (tmp_path / "n-1").mkdir()
    (tmp_path / "nodes").mkdir()
    with pytest.raises(SpecError, check=has_code("missing")):
        FolderLogs(tmp_path / "nodes", FileStore(tmp_path)).read("job", node_id, 0)
