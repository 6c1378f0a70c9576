"""obstore, and how it asks: time limits and retries that are the same for every store."""

from __future__ import annotations

from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING

from costopt.domain.distribution import install_hint
from costopt.domain.errors import MissingExtraError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

CLIENT: ClientConfig = {"connect_timeout": "5s", "timeout": "60s"}
RETRIES: RetryConfig = {
    "max_retries": 8,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=5),
        "base": 2,
    },
}
"""Server errors and throttling are asked again with jitter. A node has 30 to 120 s from its notice
to its end, so whoever saves must hear of a store that is down while there is time for another."""


def import_obstore(extra: str) -> ModuleType:
    """The library that speaks to clouds. Raises MissingExtraError naming ``extra``."""
    try:
        import obstore
        import obstore.store
    except ImportError as error:
        raise MissingExtraError(
            "this object store needs obstore, which is not installed",
            hint=install_hint(extra),
        ) from error
    return obstore
