"""`costopt setup` killed after each call that changes something, and run again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.aws.setup_cloud import REGION, empty_account, held
from tests.support.command_line import invoke
from tests.support.forked_commands import ForkedCommand
from tests.support.gcp import account as gcp_account
from tests.support.held_call import HeldCall
from tests.support.live_run import PATIENCE_S
from tests.support.node_folder import variables

READS = ("Get", "List", "Describe", "HEAD", "GET")
CHANGES = {"aws": (25, 13), "gcp": (14, 14)}
"""How many calls of a whole setup, and of its removal, change something."""
CREATIONS = [(name, n) for name, (many, _) in CHANGES.items() for n in range(1, many + 1)]
REMOVALS = [(name, n) for name, (_, many) in CHANGES.items() for n in range(1, many + 1)]


@dataclass(frozen=True)
class World:
    """An empty account; ``method`` of ``owner`` answers its calls."""

    provider: str
    environment: Mapping[str, str]
    owner: Any
    method: str
    changes: Callable[[Any], bool]
    names: Callable[[], set[str]]

    def setup(self, *words: str) -> None:
        """Run setup to its end."""
        done = invoke("setup", self.provider, *words, "--apply")
        assert done.exit_code == 0, done.output

    def all_ready(self) -> bool:
        """Whether setup finds nothing left to do."""
        said = invoke("setup", self.provider, "-o", "csv").stdout
        return not any(state in said for state in (",missing,", ",incomplete,", ",foreign,"))

    @contextmanager
    def held_at(self, nth: int) -> Iterator[HeldCall]:
        """Leave the ``nth`` change unanswered."""
        call = HeldCall(getattr(self.owner, self.method), self.changes, nth)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(self.owner, self.method, call)
            try:
                yield call
            finally:
                call.released.set()

    def kill_at(self, nth: int, *words: str) -> None:
        """Run setup and kill it when its ``nth`` change is made and not yet answered."""
        arguments = ["-m", "costopt", "setup", self.provider, *words, "--apply"]
        with self.held_at(nth) as call:
            process = ForkedCommand(arguments, Path.cwd(), variables(**self.environment))
            try:
                assert call.reached.wait(PATIENCE_S), process.said()
                os.kill(process.pid, signal.SIGKILL)
                assert process.wait(PATIENCE_S) == -signal.SIGKILL
            finally:
                process.kill()


def aws(request: pytest.FixtureRequest) -> World:
    cloud = empty_account(request.getfixturevalue("cloud"))

    def names() -> set[str]:
        return {name for name in held(cloud) if not name.startswith("group ")}

    return World(
        "aws",
        {**cloud.environment(), "AWS_REGION": REGION},
        cloud.overlay,
        "answer",
        lambda call: call.service != "sts" and not call.action.startswith(READS),
        names,
    )


def gcp(request: pytest.FixtureRequest) -> World:
    cloud = request.getfixturevalue("project").cloud
    made = cloud.resources

    def names() -> set[str]:
        roles = {name for name, role in made.roles.items() if not role.get("deleted")}
        grants = {
            each["role"] for policy in made.policies.values() for each in policy.get("bindings", ())
        }
        return {*made.accounts, *roles, *made.firewalls, *cloud.access.buckets, *grants}

    return World(
        "gcp",
        {
            "COSTOPT_GCP_ENDPOINT": cloud.endpoint,
            "GOOGLE_CLOUD_PROJECT": "project-1",
            "CLOUDSDK_COMPUTE_REGION": gcp_account.REGION,
        },
        cloud,
        "_answered",
        lambda call: call.method != "GET" and not call.action.endswith(".getIamPolicy"),
        names,
    )


WORLDS = {"aws": aws, "gcp": gcp}


@pytest.fixture
def make_world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], World]:
    def make(name: str) -> World:
        world = WORLDS[name](request)
        for variable, value in world.environment.items():
            monkeypatch.setenv(variable, value)
        monkeypatch.chdir(tmp_path)
        return world

    return make


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_among_those_at_which_it_is_killed(
    make_world: Callable[[str], World], name: str
) -> None:
    world = make_world(name)
    with world.held_at(0) as created:
        world.setup()
    with world.held_at(0) as removed:
        world.setup("--remove")
    assert (created.count, removed.count) == CHANGES[name]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "nth"), CREATIONS)
def test_what_a_killed_setup_began_is_completed(
    make_world: Callable[[str], World], name: str, nth: int
) -> None:
    world = make_world(name)
    before = world.names()
    world.kill_at(nth)
    world.setup()
    assert world.all_ready()
    assert Path("account.yaml").exists()
    world.setup("--remove")
    assert world.names() == before


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "nth"), REMOVALS)
def test_what_a_killed_removal_left_is_removed(
    make_world: Callable[[str], World], name: str, nth: int
) -> None:
    world = make_world(name)
    before = world.names()
    world.setup()
    world.kill_at(nth, "--remove")
    world.setup("--remove")
    assert world.names() == before
    assert not Path("account.yaml").exists()
