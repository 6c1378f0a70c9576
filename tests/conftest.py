"""What holds for every test."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support import exhaustive, last_events, properties, tiers
from tests.support.aws.fixtures import account, aws_clients, aws_server, cloud
from tests.support.ceph import ceph
from tests.support.gcp.fixtures import gcp_cloud, gcp_server, project
from tests.support.kubernetes.fixtures import cluster, kubernetes_proxy, kubernetes_server
from tests.support.postgres_server import postgres, postgres_url
from tests.support.slurm.fixtures import slurm, slurm_rest_world, slurm_world
from tests.support.unhurried import unhurried

if TYPE_CHECKING:
    from tests.support.daemon_fixtures import DaemonScene

__all__ = [
    "account",
    "aws_clients",
    "aws_server",
    "ceph",
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
    "unhurried",
]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[DaemonScene]:
    """A daemon over a simulated cloud, which a test ticks."""
    from tests.support.daemon_fixtures import DaemonScene

    made = DaemonScene(tmp_path)
    yield made
    made.close()


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.worker_group("postgres"))]
)
def database_place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where a database can be made that outlives its connections: a file, or a server's URL."""
    if request.param == "sqlite":
        return tmp_path / "database.sqlite"
    return str(request.getfixturevalue("postgres_url"))


pytest_plugins = ["tests.support.forked_workers"]
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
"""How long a property takes on a busy machine says nothing of the code."""
EXAMPLES_SHARE = float(os.environ.get("COSTOPT_EXAMPLES_SHARE", "1"))
"""The share of the examples of every property that are tried: 1, less where every push is."""


def pytest_configure(config: pytest.Config) -> None:
    """Signals that a shell's background job ignores would be ignored by what tests start, too.

    The price lists that a developer has fetched do not count, and no daemon fetches any.
    """
    os.environ["COSTOPT_DAEMON_PRICE_LISTS_S"] = "none"
    os.environ.setdefault("GOGC", "400")  # programs in Go: a third less time for more memory
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


def pytest_report_header() -> str:
    """Return how much of exhaustive tests is run."""
    every, commit = exhaustive.EVERY, exhaustive.COMMIT
    return f"exhaustive tests: one of {every} points, chosen by commit {commit:040x}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a process, a browser or PostgreSQL; leave cases of exhaustive tests out."""
    tiers.mark(items)
    left_out = exhaustive.left_out(items)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]
    if EXAMPLES_SHARE < 1:
        for function in {getattr(item, "function", None) for item in items}:
            properties.try_fewer(function, EXAMPLES_SHARE)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """In the quick tier, fail a test that starts a process without saying so."""
    result = yield
    tiers.check_unmarked(item)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what a failed test's ledgers hold."""
    report = yield
    last_events.report_events(item, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """End what no later test of this worker uses."""
    result = yield
    tiers.end_servers(item, nextitem)
    return result


def pytest_runtest_setup() -> None:
    """Count the processes of each test apart, those of its fixtures included."""
    tiers.started.clear()
