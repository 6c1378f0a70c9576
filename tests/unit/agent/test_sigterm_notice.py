"""The SIGTERM of a kubelet is the notice, where the command line says so."""

from __future__ import annotations

import os
import signal

import pytest

from costopt.agent.notices import notice_source
from tests.support.live_run import wait_until


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
