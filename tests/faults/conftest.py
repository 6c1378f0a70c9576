"""Tests that start training nodes as processes run one after another: they need the cores."""

from __future__ import annotations

import pytest

HEAVY = ("test_run_", "test_process_")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every such test to the same worker."""
    for item in items:
        if item.path.name.startswith(HEAVY):
            item.add_marker(pytest.mark.worker_group("processes"))
