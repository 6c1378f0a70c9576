"""Tests that start training nodes as processes run two at a time at most: they need the cores."""

from __future__ import annotations

from zlib import crc32

import pytest

HEAVY = ("test_run_", "test_process_")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every such test of a file to the same one of two workers."""
    for item in items:
        if item.path.name.startswith(HEAVY):
            half = crc32(item.path.name.encode()) % 2
            item.add_marker(pytest.mark.worker_group(f"processes {half}"))
