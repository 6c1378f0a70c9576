"""How many requests a tenant may send: each has a bucket that fills at its rate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from threading import Lock

from costopt.daemon.http.problems import HttpProblemError
from costopt.domain.account import Tenant

MINUTE_S = 60.0


class RequestLimits:
    """A tenant may send a minute's requests at once, and then as many as its rate allows."""

    def __init__(
        self, tenants: Mapping[str, Tenant], stopwatch_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._tenants = tenants
        self._stopwatch_s = stopwatch_s
        self._lock = Lock()
        self._buckets: dict[str, tuple[float, float]] = {}

    def charge(self, name: str) -> None:
        """Count one request of a tenant. Raise HttpProblemError 429 if it is one too many."""
        tenant = self._tenants.get(name)
        if tenant is None or tenant.max_requests_per_minute is None:
            return
        limit = tenant.max_requests_per_minute
        with self._lock:
            now_s = self._stopwatch_s()
            left, at_s = self._buckets.get(name, (float(limit), now_s))
            left = min(float(limit), left + (now_s - at_s) * limit / MINUTE_S)
            is_allowed = left >= 1.0
            self._buckets[name] = (left - 1.0 if is_allowed else left), now_s
        if not is_allowed:
            wait_s = math.ceil((1.0 - left) * MINUTE_S / limit)
            raise HttpProblemError(
                429,
                f"tenant {name!r} sends more than {limit} requests per minute",
                hint=f"wait {wait_s} s, or ask the daemon's operator for max_requests_per_minute",
                headers={"Retry-After": str(wait_s)},
            )
