"""Sources of interruption notices against metadata servers that speak HTTP on the loopback."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from costopt.agent.notices import aws, notice_source
from costopt.agent.notices.aws import ACTION_PATH, REBALANCE_PATH, AwsNoticeSource
from costopt.agent.notices.base import FileNoticeSource, NoNotices, NoticeSource
from costopt.agent.notices.gcp import GcpNoticeSource
from tests.support.fake_metadata import FakeMetadata

FAST_S = 0.01
PATIENCE_S = 120.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that waits for its turn on a busy machine is not taken to be silent."""
    monkeypatch.setattr(aws, "TIMEOUT_S", PATIENCE_S)


@pytest.fixture
def metadata() -> Iterator[FakeMetadata]:
    server = FakeMetadata()
    yield server
    server.stop()


@pytest.fixture
def started() -> Iterator[Callable[[NoticeSource], NoticeSource]]:
    sources: list[NoticeSource] = []

    def start(source: NoticeSource) -> NoticeSource:
        sources.append(source)
        source.start()
        return source

    yield start
    for source in sources:
        source.close()


Start = Callable[[NoticeSource], NoticeSource]


def until(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_aws_without_a_notice_is_not_an_interruption(
    metadata: FakeMetadata, started: Start
) -> None:
    source = started(AwsNoticeSource(FAST_S, metadata.url))
    until(lambda: metadata.asked.count(ACTION_PATH) > 3)
    assert source.notice() is None
    assert source.rebalance_warning() == source.error() == ""
    assert metadata.tokens_given == 1


def test_aws_reports_the_action_and_when(metadata: FakeMetadata, started: Start) -> None:
    source = started(AwsNoticeSource(FAST_S, metadata.url))
    metadata.say(ACTION_PATH, '{"action": "stop", "time": "2026-03-01T12:00:00Z"}')
    until(source.notice)
    notice = source.notice()
    assert notice is not None
    assert (notice.action, notice.time) == ("stop", "2026-03-01T12:00:00Z")
    assert notice.deadline_at == 1772366400.0


def test_aws_notice_that_cannot_be_read_is_one(metadata: FakeMetadata, started: Start) -> None:
    metadata.say(ACTION_PATH, "<html>")
    began = time.time()
    source = started(AwsNoticeSource(FAST_S, metadata.url))
    until(source.notice)
    notice = source.notice()
    assert notice is not None
    assert notice.action == "terminate"
    assert notice.deadline_at is not None
    assert began + 120 <= notice.deadline_at <= time.time() + 120


def test_aws_rebalance_is_a_warning_only(metadata: FakeMetadata, started: Start) -> None:
    metadata.say(REBALANCE_PATH, '{"noticeTime": "2026-03-01T11:00:00Z"}')
    source = started(AwsNoticeSource(FAST_S, metadata.url))
    until(source.rebalance_warning)
    assert source.rebalance_warning() == "rebalance recommended 2026-03-01T11:00:00Z"
    assert source.notice() is None


def test_an_expired_aws_token_is_fetched_again(metadata: FakeMetadata, started: Start) -> None:
    source = started(AwsNoticeSource(FAST_S, metadata.url))
    until(lambda: metadata.tokens_given)
    metadata.token = "second"
    metadata.say(ACTION_PATH, '{"action": "terminate", "time": "2026-03-01T12:00:00Z"}')
    until(source.notice)
    assert metadata.tokens_given >= 2


def test_aws_that_is_down_or_fails_is_a_failure_and_no_notice(
    metadata: FakeMetadata, started: Start
) -> None:
    metadata.status = 500
    source = started(AwsNoticeSource(FAST_S, metadata.url))
    until(source.error)
    assert "answered 500" in source.error()
    assert source.notice() is None
    metadata.status = None
    until(lambda: not source.error())
    gone = started(AwsNoticeSource(FAST_S, "http://127.0.0.1:9"))
    until(gone.error)
    assert gone.notice() is None


def test_a_notice_outlives_the_service(metadata: FakeMetadata, started: Start) -> None:
    metadata.say(ACTION_PATH, '{"action": "terminate", "time": "2026-03-01T12:00:00Z"}')
    source = started(AwsNoticeSource(FAST_S, metadata.url))
    until(source.notice)
    metadata.status = 500
    until(source.error)
    assert source.notice() is not None


def test_a_service_that_hangs_does_not_hold_up_the_agent(
    metadata: FakeMetadata, started: Start
) -> None:
    metadata.hang_s = PATIENCE_S
    source = started(AwsNoticeSource(FAST_S, metadata.url))
    until(lambda: metadata.asked)
    began = time.perf_counter()
    for _ in range(100):
        assert source.notice() is None
    assert time.perf_counter() - began < metadata.hang_s


def test_proxies_are_not_asked(
    metadata: FakeMetadata, started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url + "/")
    metadata.say(ACTION_PATH, '{"action": "terminate", "time": "2026-03-01T12:00:00Z"}')
    source = started(AwsNoticeSource(FAST_S))
    until(source.notice)


def test_google_is_heard_as_soon_as_it_changes(
    metadata: FakeMetadata, started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", metadata.url.removeprefix("http://"))
    source = started(GcpNoticeSource(FAST_S))
    until(lambda: sum("wait_for_change" in path for path in metadata.asked) == 2)
    assert source.notice() is None
    assert source.rebalance_warning() == ""
    time.sleep(0.1)
    assert len(metadata.asked) == 4, "the server holds the question until the answer changes"
    began = time.time()
    metadata.say("preempted", "TRUE")
    until(source.notice)
    notice = source.notice()
    assert notice is not None
    assert notice.action == "terminate"
    assert notice.deadline_at is not None
    assert began + 30 <= notice.deadline_at <= time.time() + 30


def test_google_that_asks_again_after_a_silent_poll(metadata: FakeMetadata, started: Start) -> None:
    source = started(GcpNoticeSource(FAST_S, metadata.url, notice_s=120, long_poll_s=0))
    until(lambda: len(metadata.asked) > 8)
    assert source.notice() is None
    began = time.time()
    metadata.say("preempted", "TRUE")
    until(source.notice)
    notice = source.notice()
    assert notice is not None
    assert notice.deadline_at is not None
    assert began + 120 <= notice.deadline_at <= time.time() + 120


def test_google_maintenance_that_migrates_is_a_warning_and_one_that_ends_a_notice(
    metadata: FakeMetadata, started: Start
) -> None:
    source = started(GcpNoticeSource(FAST_S, metadata.url))
    metadata.say("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE")
    until(source.rebalance_warning)
    assert source.notice() is None
    metadata.say("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
    until(source.notice)
    notice = source.notice()
    assert notice is not None
    assert notice.action == "stop"


def test_google_that_fails_is_a_failure(metadata: FakeMetadata, started: Start) -> None:
    metadata.status = 503
    source = started(GcpNoticeSource(FAST_S, metadata.url))
    until(source.error)
    assert source.notice() is None


def test_a_file_tells_how_long_is_left_by_the_wall(tmp_path: Path) -> None:
    path = tmp_path / "notice.json"
    source = FileNoticeSource(path)
    assert source.notice() is None
    reported = {"noticed_at": "2026-03-01T12:00:00+00:00", "time": "2026-03-01T12:02:00+00:00"}
    path.write_text(json.dumps(reported))
    os.utime(path, (1000.0, 1000.0))
    source.speed = 60.0
    notice = source.notice()
    assert notice is not None
    assert notice.deadline_at == 1002.0
    for text in ("", "{", "[]", '{"time": 3}', '{"time": "x", "noticed_at": "y"}'):
        path.write_text(text)
        notice = source.notice()
        assert notice is not None
        assert notice.deadline_at is None


def test_a_source_is_named_on_the_command_line(tmp_path: Path) -> None:
    named = notice_source(f"file:{tmp_path}/a:b")
    assert isinstance(named, FileNoticeSource)
    assert named.path == tmp_path / "a:b"
    assert isinstance(notice_source("aws"), AwsNoticeSource)
    assert isinstance(notice_source("gcp:120"), GcpNoticeSource)
    no_one = notice_source("none")
    assert isinstance(no_one, NoNotices)
    assert no_one.notice() is None
    for wrong in ("", "file:", "aws:x", "azure", "gcp:soon"):
        with pytest.raises(ValueError, match="not a source of notices"):
            notice_source(wrong)
