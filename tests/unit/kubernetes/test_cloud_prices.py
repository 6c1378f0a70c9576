"""Prices of an autoscaler's machines: the cloud's own adapter, the catalogue, or none."""

from __future__ import annotations

from typing import Any

from costopt.catalog.site_machines import account_catalog
from costopt.domain.account import Account
from costopt.domain.market import CapacityType, Pool
from costopt_kubernetes import KubernetesOptions
from costopt_kubernetes.offers import CloudPrices
from tests.support.aws.account import SPOT, NewAccount


def prices(account: NewAccount, **more: Any) -> CloudPrices:
    options = {"cluster": "test", "cloud": f"aws/{SPOT.region}", **more}
    machines = account_catalog(Account(providers={"kubernetes": options}))
    return CloudPrices(account.clock, KubernetesOptions.parse({**options, "machines": machines}))


def pool(zone: str, instance_type: str = SPOT.instance_type) -> Pool:
    return Pool("kubernetes", "test", zone, instance_type, CapacityType.SPOT)


def test_with_its_options_the_clouds_adapter_tells_the_prices(account: NewAccount) -> None:
    now = account.clock.now()
    found = prices(account, cloud_options={"instance_types": [SPOT.instance_type]})
    theirs = {o.pool: o.price_usd_per_hour for o in account.provider.offers(now)}[SPOT]
    assert theirs is not None
    mine, _ = found.of(pool(SPOT.zone), now)
    assert mine is not None
    assert mine.value == theirs.value
    for other in ("test*", "us-east-1a"):
        highest, _ = found.of(pool(other), now)
        assert highest is not None
        assert highest.value >= mine.value
    assert found.of(pool(SPOT.zone, "unknown"), now) == (None, None)


def test_without_them_the_catalogues_dated_prices_count(account: NewAccount) -> None:
    mine, hazard = prices(account).of(pool(SPOT.zone, "g5.xlarge"), account.clock.now())
    assert mine is not None
    assert mine.observed_at is not None
    assert hazard is None
