"""What the tests of Terraform share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.terraform.complete_example import Started, started


@pytest.fixture(scope="session")
def complete_example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """Under way from its first use to the end of the session."""
    with started(tmp_path_factory.mktemp("complete")) as process:
        yield process
