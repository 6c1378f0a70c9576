"""Fixtures: one server for all tests of a process, as new for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from costopt_aws.clients import Clients
    from tests.support.aws.account import NewAccount
    from tests.support.aws.cloud import Cloud


@pytest.fixture(scope="session")
def aws_server() -> Iterator[Cloud]:
    """The server, started when the first test asks for it."""
    from tests.support.aws.cloud import served_cloud

    with served_cloud() as cloud:
        yield cloud


@pytest.fixture
def cloud(aws_server: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """An empty cloud that boto3 in this process finds by itself."""
    aws_server.reset()
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in aws_server.environment().items():
        monkeypatch.setenv(name, value)
    return aws_server


@pytest.fixture(scope="session")
def aws_clients() -> Clients:
    """Clients that try once, shared by all tests: to make one takes a third of a second."""
    from costopt_aws.clients import Clients

    return Clients(read_attempts=1)


@pytest.fixture
def account(cloud: Cloud, aws_clients: Clients) -> NewAccount:
    """A small market, and the adapter that is connected to it."""
    from tests.support.aws.account import NewAccount

    return NewAccount(cloud, aws_clients)
