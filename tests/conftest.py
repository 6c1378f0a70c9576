"""What holds for every test."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

from tests.support.aws.fixtures import account, aws_clients, aws_server, cloud
from tests.support.gcp.fixtures import gcp_cloud, gcp_server, project
from tests.support.postgres_server import postgres, postgres_url

__all__ = [
    "account",
    "aws_clients",
    "aws_server",
    "cloud",
    "gcp_cloud",
    "gcp_server",
    "postgres",
    "postgres_url",
    "project",
]


settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
"""How long a property takes on a busy machine says nothing of the code."""


def pytest_configure() -> None:
    """Signals that a shell's background job ignores would be ignored by what tests start, too."""
    for number, action in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGTERM, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, action)
