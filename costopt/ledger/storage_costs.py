"""What disks cost, and a job's checkpoints in their store: requests, and while they are kept."""

from __future__ import annotations

from bisect import bisect_left

from costopt.domain.events import CheckpointCommitted
from costopt.domain.storage import HOURS_PER_MONTH
from costopt.ledger.node_account import NodeAccount
from costopt.ledger.node_meter import MS_PER_HOUR, to_milliseconds

MS_PER_MONTH = HOURS_PER_MONTH * MS_PER_HOUR


def volume_usd_micros(node: NodeAccount, now_ms: int) -> int:
    """Return what a node's root volume cost until its end or now, 0 where that is unknown."""
    ran_ms = max(0, min(node.until_ms(now_ms), now_ms) - node.launched_ms)
    return (node.launched.volume_micros_per_hour or 0) * ran_ms // MS_PER_HOUR


class CheckpointStorage:
    """Micro-dollars at list prices. Each checkpoint is kept until as many newer ones are there as
    its job keeps, milestones until the job is over; what they cost after that is not the job's.

    ``has_unknown``: the prices of one are unknown, or its event is of a ledger without them.
    ``uri`` and ``region`` are the newest one's of those that cost anything, "" before the first.
    """

    def __init__(self) -> None:
        self.has_unknown = False
        self.uri = self.region = ""
        self._starts: list[int] = []
        self._sums = [(0, 0, 0)]
        """From each start on: micro-dollars of requests, micro-dollars per month times milliseconds
        up to it, and micro-dollars per month."""
        self._newest: list[tuple[int, bool]] = []
        self._end_ms: int | None = None

    def commit(self, event: CheckpointCommitted) -> None:
        """Charge the requests of a save at once, and what it stores from then on."""
        put_micros, micros_per_month = event.put_usd_micros, event.kept_usd_micros_per_month
        if put_micros is None or micros_per_month is None:
            self.has_unknown = True
            return
        if put_micros or micros_per_month:
            self.uri, self.region = event.uri, event.region or ""
        at_ms = max([to_milliseconds(event.at), *self._starts[-1:]])
        puts, kept, rate = self._sums[-1]
        kept += rate * (at_ms - (self._starts or [at_ms])[-1])
        self._newest.append((micros_per_month, event.is_milestone))
        replaced = self._newest[: -event.keep]
        self._newest = self._newest[-event.keep :]
        rate += micros_per_month - sum(price for price, stays in replaced if not stays)
        self._starts.append(at_ms)
        self._sums.append((puts + put_micros, kept, rate))

    @property
    def since_ms(self) -> int | None:
        """Return when the first checkpoint was saved, None before."""
        return self._starts[0] if self._starts else None

    def end(self, end_ms: int | None) -> None:
        """Charge nothing from ``end_ms`` on; None: the job goes on."""
        self._end_ms = end_ms

    def usd_micros_until(self, ms: int) -> int:
        """Return micro-dollars of what was saved before ``ms``."""
        if self._end_ms is not None:
            ms = min(ms, self._end_ms)
        saved = bisect_left(self._starts, ms)
        puts, kept, rate = self._sums[saved]
        since = self._starts[saved - 1] if saved else ms
        return puts + (kept + rate * (ms - since)) // MS_PER_MONTH
