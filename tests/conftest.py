"""What holds for every test."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.support import tiers
from tests.support.aws.fixtures import account, aws_clients, aws_server, cloud
from tests.support.gcp.fixtures import gcp_cloud, gcp_server, project
from tests.support.kubernetes.fixtures import cluster, kubernetes_proxy, kubernetes_server
from tests.support.postgres_server import postgres, postgres_url
from tests.support.slurm.fixtures import slurm, slurm_rest_world, slurm_world

__all__ = [
    "account",
    "aws_clients",
    "aws_server",
    "cloud",
    "cluster",
    "gcp_cloud",
    "gcp_server",
    "kubernetes_proxy",
    "kubernetes_server",
    "postgres",
    "postgres_url",
    "project",
    "slurm",
    "slurm_rest_world",
    "slurm_world",
]


settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
"""How long a property takes on a busy machine says nothing of the code."""


def pytest_configure(config: pytest.Config) -> None:
    """Signals that a shell's background job ignores would be ignored by what tests start, too.

    The price lists that a developer has fetched do not count, and no daemon fetches any.
    """
    os.environ["COSTOPT_DAEMON_PRICE_LISTS_S"] = "none"
    os.environ["XDG_CACHE_HOME"] = str(config.rootpath / ".pytest_cache" / "xdg")
    for number, action in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGTERM, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, action)
    if "not process" in config.option.markexpr:
        tiers.watch_processes()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a process, a browser or PostgreSQL."""
    tiers.mark(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """In the quick tier, fail a test that starts a process without saying so."""
    result = yield
    tiers.check_unmarked(item)
    return result


def pytest_runtest_setup() -> None:
    """Count the processes of each test apart, those of its fixtures included."""
    tiers.started.clear()
