"""Which pools count against a quota."""

from __future__ import annotations

import pytest

from costopt.domain.account import Quota
from costopt.domain.market import CapacityType, Pool
from tests.support.optimize_fixtures import machine


@pytest.mark.parametrize(
    ("families", "counted"),
    [
        (("p",), {"p4d.24xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"}),
        (("p5",), {"p5.48xlarge", "p5en.48xlarge"}),
        (("P4", "p3", "p2"), {"p4d.24xlarge"}),
        (("p50",), set()),
        (("g", "vt"), {"g6e.12xlarge"}),
        (("a3",), {"a3-highgpu-8g", "a3-megagpu-8g"}),
        (("a3-megagpu",), {"a3-megagpu-8g"}),
    ],
)
def test_a_family_may_name_its_generation(families: tuple[str, ...], counted: set[str]) -> None:
    quota = Quota("q", families=families)
    names = (
        *("p4d.24xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge", "g6e.12xlarge"),
        *("a3-highgpu-8g", "a3-megagpu-8g"),
    )
    pools = [Pool("aws", "r", "z", name, CapacityType.SPOT) for name in names]
    assert {p.instance_type for p in pools if quota.matches(p, machine())} == counted
