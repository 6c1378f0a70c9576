"""Fixtures: one server for all tests of a process, as new for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.gcp.account import NewAccount
    from tests.support.gcp.cloud import Cloud


@pytest.fixture(scope="session")
def gcp_server() -> Iterator[Cloud]:
    """The server, started when the first test asks for it."""
    from tests.support.gcp.cloud import served_cloud

    with served_cloud() as cloud:
        yield cloud


@pytest.fixture
def gcp_cloud(gcp_server: Cloud) -> Cloud:
    """An empty cloud."""
    gcp_server.reset()
    return gcp_server


@pytest.fixture
def project(gcp_cloud: Cloud) -> NewAccount:
    """A small market, and the adapter that is connected to it."""
    from tests.support.gcp.account import NewAccount

    return NewAccount(gcp_cloud)
