"""The API of commands on nodes: who may have them run, and where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from costopt.client.client import ApiError, DaemonClient, parse_address
from costopt.domain.control import Scope
from costopt.protocol.node_commands import CommandBox, CommandResult
from tests.support.daemon_api import Served, served

BODY = {"command": ["nvidia-smi", "-q"]}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as daemon:
        yield daemon


def test_a_command_reaches_the_node_and_its_result_comes_back(daemon: Served) -> None:
    client = daemon.bearer(Scope.SUBMIT)
    posted = client.send("POST", "jobs", "one", "commands", body=BODY)
    assert posted["node_id"] == "i-1"
    box = CommandBox(daemon.logs.store, "one")
    command = box.newest("i-1")
    assert command is not None
    assert command.command == ("nvidia-smi", "-q")
    state = client.get("jobs", "one", "commands", "i-1", posted["id"])
    assert state["result"] is None
    box.post_result("i-1", CommandResult(command.id, 0, "GPU 0\n"))
    state = client.get("jobs", "one", "commands", "i-1", posted["id"])
    assert (state["result"]["exit_code"], state["result"]["output"]) == (0, "GPU 0\n")


@pytest.mark.parametrize(
    ("job", "node", "status"), [("two", None, 409), ("one", "i-9", 409), ("none", None, 404)]
)
def test_there_must_be_such_a_node(daemon: Served, job: str, node: str | None, status: int) -> None:
    with pytest.raises(ApiError) as refused:
        daemon.local.send("POST", "jobs", job, "commands", body={**BODY, "node": node})
    assert refused.value.status == status


def test_readers_and_other_tenants_may_run_nothing(daemon: Served) -> None:
    others = DaemonClient(parse_address(daemon.url), daemon.token(Scope.SUBMIT, tenant="other"))
    for client, status in ((daemon.bearer(Scope.READ), 403), (others, 404)):
        with pytest.raises(ApiError) as refused:
            client.send("POST", "jobs", "one", "commands", body=BODY)
        assert refused.value.status == status
    assert CommandBox(daemon.logs.store, "one").newest("i-1") is None
