"""Fixtures: one server for all tests of a process, as new for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.kubernetes.api_server import ApiServer
    from tests.support.kubernetes.cluster import NewCluster
    from tests.support.kubernetes.proxy import ApiProxy


@pytest.fixture(scope="session")
def kubernetes_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """The server, started when the first test asks for it; without one, such tests are skipped."""
    from tests.support.kubernetes.api_server import missing_reason, served

    why = missing_reason()
    if why is not None:
        pytest.skip(why)
    with served(tmp_path_factory.mktemp("kubernetes")) as server:
        yield server


@pytest.fixture(scope="session")
def kubernetes_proxy(kubernetes_server: ApiServer) -> Iterator[ApiProxy]:
    """What stands between the adapter and the server."""
    from tests.support.kubernetes.proxy import ApiProxy

    proxy = ApiProxy(kubernetes_server.connections)
    yield proxy
    proxy.stop()


@pytest.fixture
def cluster(
    kubernetes_server: ApiServer, kubernetes_proxy: ApiProxy, tmp_path: Path
) -> Iterator[NewCluster]:
    """A small cluster, and the adapter that is connected to it."""
    from tests.support.kubernetes.cluster import NewCluster

    new = NewCluster(kubernetes_server, kubernetes_proxy, tmp_path)
    yield new
    new.close()
