"""`costopt setup` killed after each call that changes something, and run again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.aws.cloud import Cloud
from tests.support.aws.setup_cloud import REGION, HeldCall, empty_account, held
from tests.support.command_line import invoke
from tests.support.forked_commands import ForkedCommand
from tests.support.live_run import PATIENCE_S
from tests.support.node_folder import variables

CHANGES = {"--apply": 25, "--remove": 13}
"""How many calls of a whole setup, and of its removal, change something."""
COMPLETE = {
    "bucket costopt-123456789012-us-east-1",
    "profile costopt-daemon",
    "profile costopt-node",
    "queue costopt-events",
    "role costopt-daemon",
    "role costopt-node",
    "rule costopt-instances",
}


@pytest.fixture
def account(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.chdir(tmp_path)
    return empty_account(cloud)


def names(cloud: Cloud) -> set[str]:
    return {name for name in held(cloud) if not name.startswith("group ")}


def setup(*words: str) -> None:
    done = invoke("setup", "aws", *words, "--apply")
    assert done.exit_code == 0, done.output


@contextmanager
def held_at(cloud: Cloud, nth: int) -> Iterator[HeldCall]:
    call = HeldCall(cloud.overlay.answer, nth)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cloud.overlay, "answer", call)
        try:
            yield call
        finally:
            call.released.set()


def kill_at(cloud: Cloud, nth: int, *words: str) -> None:
    """Run setup and kill it when its ``nth`` change is made and not yet answered."""
    environment = variables(**cloud.environment(), AWS_REGION=REGION)
    arguments = ["-m", "costopt", "setup", "aws", *words, "--apply"]
    with held_at(cloud, nth) as call:
        process = ForkedCommand(arguments, Path.cwd(), environment)
        try:
            assert call.reached.wait(PATIENCE_S), process.said()
            os.kill(process.pid, signal.SIGKILL)
            assert process.wait(PATIENCE_S) == -signal.SIGKILL
        finally:
            process.kill()


def test_every_change_is_among_those_at_which_it_is_killed(account: Cloud) -> None:
    with held_at(account, 0) as created:
        setup()
    with held_at(account, 0) as removed:
        setup("--remove")
    assert {"--apply": created.changes, "--remove": removed.changes} == CHANGES


@pytest.mark.exhaustive
@pytest.mark.parametrize("nth", range(1, CHANGES["--apply"] + 1))
def test_what_a_killed_setup_began_is_completed(account: Cloud, nth: int) -> None:
    before = names(account)
    kill_at(account, nth)
    setup()
    assert names(account) - before == COMPLETE
    assert Path("account.yaml").exists()
    setup("--remove")
    assert names(account) == before


@pytest.mark.exhaustive
@pytest.mark.parametrize("nth", range(1, CHANGES["--remove"] + 1))
def test_what_a_killed_removal_left_is_removed(account: Cloud, nth: int) -> None:
    before = names(account)
    setup()
    kill_at(account, nth, "--remove")
    setup("--remove")
    assert names(account) == before
    assert not Path("account.yaml").exists()
