"""On which interruptions' notice a gang can save."""

from __future__ import annotations

from dataclasses import replace

from costopt.domain.market import CapacityType, Pool
from costopt.domain.notices import notice_period, noticed_share, spot_notice_s

AWS = Pool("aws", "us-east-1", "us-east-1a", "p3.2xlarge", CapacityType.SPOT)
GCP = Pool("gcp", "us-central1", "us-central1-a", "a2-highgpu-1g", CapacityType.SPOT)
ON_DEMAND = GCP.with_capacity_type(CapacityType.ON_DEMAND)


def test_each_provider_gives_its_own_notice() -> None:
    assert (spot_notice_s(AWS), spot_notice_s(GCP)) == (120.0, 30.0)
    assert spot_notice_s(replace(AWS, provider="unheard of")) == 30.0
    assert notice_period(7.0)(AWS) == 7.0
    assert notice_period(None)(GCP) == 30.0


def test_the_shortest_notice_of_the_interruptible_nodes_counts() -> None:
    assert noticed_share([AWS], spot_notice_s, save_s=90.0) == 1.0
    assert noticed_share([AWS, GCP], spot_notice_s, save_s=90.0) == 0.0
    assert noticed_share([AWS, ON_DEMAND], spot_notice_s, save_s=90.0) == 1.0
    assert noticed_share([GCP], spot_notice_s, save_s=30.0) == 0.0, "no time is left to save"
    assert noticed_share([ON_DEMAND], spot_notice_s, save_s=1.0) == 0.0
