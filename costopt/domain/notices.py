"""The notice that a provider gives before it interrupts a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from costopt.domain.market import Pool

NoticePeriod = Callable[[Pool], float]
"""Seconds from the notice of an interruption to the interruption, for a node of a pool."""

SPOT_NOTICE_S: Mapping[str, float] = {
    # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
    "aws": 120.0,
    # https://cloud.google.com/compute/docs/instances/spot#preemption-process
    "gcp": 30.0,
    # https://learn.microsoft.com/azure/virtual-machines/spot-vms
    "azure": 30.0,
}
OTHER_NOTICE_S = min(SPOT_NOTICE_S.values())
"""Of a provider that is not among them: one that gives more is not relied on to do so."""


def spot_notice_s(pool: Pool) -> float:
    """Return the seconds of notice that the pool's provider gives by default."""
    return SPOT_NOTICE_S.get(pool.provider, OTHER_NOTICE_S)


def no_notice(pool: Pool) -> float:  # noqa: ARG001
    """Return 0: nothing is known of a notice."""
    return 0.0


def notice_period(notice_s: float | None) -> NoticePeriod:
    """Return the same notice for all pools, for None what each provider gives by default."""
    return spot_notice_s if notice_s is None else lambda _: notice_s


def noticed_share(pools: Iterable[Pool], notice_s: NoticePeriod, save_s: float) -> float:
    """Return the share of a gang's interruptions on whose notice it can save.

    1 where the shortest notice of its interruptible ``pools`` is longer than a save, else 0.
    """
    notices_s = (notice_s(pool) for pool in pools if pool.capacity_type.is_interruptible)
    return 1.0 if min(notices_s, default=0.0) > save_s else 0.0
