"""The notice that an agent hands to its trainer, which a kubelet's SIGTERM may be."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from costopt.agent.notices import notice_source
from costopt.protocol.trainer_files import StopNotice
from tests.support.live_run import wait_until


def test_it_makes_the_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "notice.json"
    assert StopNotice.read(path) is None
    notice = StopNotice("spot", "2026-03-01T12:00:00Z", 1000.0, 5e8)
    notice.write(path)
    assert StopNotice.read(path) == notice


def test_one_that_cannot_be_read_is_one(tmp_path: Path) -> None:
    path = tmp_path / "notice.json"
    for text in ("", "[]", '{"other": 1}'):
        path.write_text(text)
        assert StopNotice.read(path) is not None


def test_an_upload_must_end_before_the_node_does() -> None:
    notice = StopNotice("spot", None, deadline_at=1030.0, upload_bytes_per_s=1e9)
    assert notice.allows(20_000_000_000, 1000.0) is True
    assert notice.allows(20_000_000_000, 1000.0, spare_s=12.0) is False
    assert notice.allows(40_000_000_000, 1000.0) is False
    assert StopNotice("drain").allows(1, 0.0) is None
    assert StopNotice("spot", None, 1030.0).allows(1, 0.0) is None


def test_a_kubelet_announces_by_its_signal() -> None:
    source = notice_source("sigterm:60")
    assert source.signals == {signal.SIGTERM}
    assert source.notice() is None


@pytest.mark.parametrize("text", ["sigterm", "sigterm:", "sigterm:soon"])
def test_the_time_until_the_end_has_to_be_named(text: str) -> None:
    with pytest.raises(ValueError, match="source of notices"):
        notice_source(text)


def test_the_signal_is_the_notice_until_the_source_is_closed() -> None:
    before = signal.getsignal(signal.SIGTERM)
    source = notice_source("sigterm:60")
    source.start()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: source.notice() is not None, "the notice")
    finally:
        source.close()
    assert signal.getsignal(signal.SIGTERM) is before
