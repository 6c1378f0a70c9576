"""Accounts on EC2's and Compute Engine's test clouds, for what holds on both alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

ACCOUNTS = {"aws_server": "account", "gcp_server": "project"}
"""The fixtures of accounts, by their test clouds' servers."""


@pytest.fixture(params=ACCOUNTS)
def either(request: pytest.FixtureRequest) -> Any:
    """A small market on one cloud after another, and the adapter that is connected to it."""
    return request.getfixturevalue(ACCOUNTS[request.param])


def on_each(names: str, cases: Mapping[str, Iterable[Any]]) -> pytest.MarkDecorator:
    """Parametrize a test by ``either`` and ``names``, with the cases of each server."""
    values = [
        (server, *(case if isinstance(case, tuple) else (case,)))
        for server, of_server in cases.items()
        for case in of_server
    ]
    return pytest.mark.parametrize(f"either, {names}", values, indirect=["either"])
