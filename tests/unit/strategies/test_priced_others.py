"""What others use of owned nodes, and what a quota allows, bound the policy `priced`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import pytest

from costopt.domain.account import Account, Quota
from costopt.domain.market import Offer
from costopt.engine.loop import VirtualClock
from tests.support.owned_cluster import (
    cluster_controller,
    cluster_site,
    job_of,
    made_workload,
    owner,
)

NODES, NODE_GPUS = 2, 8


class Shared:
    """A cluster whose first node somebody else uses, too, and a job for all of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, account: Account) -> None:
        self.account = account
        self.site = cluster_site(account)
        self.others = 0
        (recorded,) = made_workload(1, seed=2, hours=0.0, tenants={"a": 1.0}).jobs
        speeds = tuple((1 << power, 1.4**power) for power in range(5))
        sizes = replace(recorded, gpus=16, smallest_gpus=1, largest_gpus=16, speeds=speeds)
        jobs = [job_of(replace(sizes, duration_s=1e6))]
        self.engine = cluster_controller(self.site, account, jobs).engine
        (provider,) = self.site.providers
        monkeypatch.setattr(provider, "offers", self._shared(provider.offers))

    def _shared(self, plain: object) -> object:
        def offers(now: datetime) -> Sequence[Offer]:
            assert callable(plain)
            return [self._seen(offer) for offer in plain(now)]

        return offers

    def _seen(self, offer: Offer) -> Offer:
        if offer.pool.zone != "n0001":
            return offer
        part = int(offer.pool.instance_type.partition(":")[2] or NODE_GPUS)
        ours = NODE_GPUS - self.others
        most = min(offer.nodes_available or 0, ours // part)
        return replace(offer, nodes_available=most, nodes_ours=ours // part)

    def tick(self, minutes: int = 1) -> dict[str, int]:
        """The GPUs of each node that the job was given in the end."""
        assert isinstance(self.site.clock, VirtualClock)
        for _ in range(minutes):
            result = self.engine.tick()
            self.site.clock.sleep(60.0)
        held: dict[str, int] = {}
        for decision in result.desired.decisions:
            for target in decision.targets:
                part = int(target.pool.instance_type.partition(":")[2] or NODE_GPUS)
                held[target.pool.zone] = held.get(target.pool.zone, 0) + part
        return held


def test_gpus_that_others_use_are_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Shared(monkeypatch, owner(NODES))
    cluster.others = 5
    assert cluster.tick(10) == {"n0002": NODE_GPUS}
    cluster.others = 0
    assert cluster.tick(10) == {"n0001": NODE_GPUS, "n0002": NODE_GPUS}


def test_others_come_before_gangs_that_do_not_run_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Shared(monkeypatch, owner(NODES))
    (provider,) = cluster.site.providers
    monkeypatch.setattr(provider, "launch", lambda _: ())
    assert cluster.tick() == {"n0001": NODE_GPUS, "n0002": NODE_GPUS}
    cluster.others = 7
    assert cluster.tick() == {"n0002": NODE_GPUS}


def test_a_quota_bounds_what_jobs_have_together(monkeypatch: pytest.MonkeyPatch) -> None:
    quota = Quota("granted", provider="onprem", region="lab", max_gpus=11)
    cluster = Shared(monkeypatch, replace(owner(NODES), quotas=(quota,)))
    assert sum(cluster.tick(10).values()) == NODE_GPUS
