"""Clients that tests share: making one takes longer than most tests."""

from __future__ import annotations

from functools import cache

from costopt_aws.clients import Clients


@cache
def shared_clients(attempts: int = 5) -> Clients:
    """Clients of the test cloud, made while a test's ``cloud`` is in force."""
    return Clients(read_attempts=attempts)
