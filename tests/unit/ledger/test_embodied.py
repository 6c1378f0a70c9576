"""Embodied carbon is counted by the hour, apart from emissions, and unknown where it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.catalog import load_catalog
from costopt.domain.market import Pool
from costopt.domain.policy import CarbonSignal
from costopt.domain.power import NodePower
from costopt.domain.view import Target
from costopt.energy.node_power import NodePowerModel
from costopt.formatting import sci_text
from costopt.ledger.summary import sci_gco2e_per_unit
from tests.support.engine_fixtures import SPOT_A, Follow, Scene, always, task
from tests.support.known_figure import known

HOUR_S = 3600.0
PER_HOUR = known(load_catalog().embodied(SPOT_A)).gco2e_per_hour


def ran(embodied: bool = True) -> Scene:
    class Powers(NodePowerModel):
        def node_power(
            self, pool: Pool, carbon_signal: CarbonSignal = CarbonSignal.AVERAGE
        ) -> NodePower | None:
            power = known(super().node_power(pool, carbon_signal))
            return replace(power, embodied_gco2e_per_hour=PER_HOUR if embodied else None)

    powers = Powers(load_catalog())
    made = Scene(always(SPOT_A, 9, 2.0), jobs=[task(4 * HOUR_S)], powers=powers)
    made.strategy = Follow(Target(SPOT_A, 1))
    made.restart()
    made.finish()
    return made


def test_a_node_takes_its_share_of_the_server_over_its_lifetime() -> None:
    # p3.2xlarge: 8 of the 64 vCPUs of a server of 3,543.79 kg that serves four years.
    assert pytest.approx(3543.79e3 / 8 / (4 * 8766)) == PER_HOUR


@pytest.mark.parametrize(
    ("pool", "kilograms"),
    [
        ("aws/us-east-1/us-east-1a/p5.48xlarge/spot", 7044.98),
        ("aws/us-east-1/us-east-1a/p5.4xlarge/spot", 849.58),
        ("gcp/us-central1/us-central1-a/a3-highgpu-8g/spot", 5356.14),
        ("gcp/us-central1/us-central1-a/a3-highgpu-1g/spot", 5356.14 / 8),
        ("aws/us-east-1/us-east-1a/p5en.48xlarge/spot", None),
        ("aws/us-east-1/us-east-1a/p6-b200.48xlarge/spot", None),
    ],
)
def test_h100_machines_are_known_with_their_sources_and_newer_ones_unknown(
    pool: str, kilograms: float | None
) -> None:
    found = load_catalog().embodied(Pool.parse(pool))
    if kilograms is None:
        assert found is None
    else:
        assert known(found).gco2e_per_hour == pytest.approx(kilograms * 1000 / (4 * 8766))
        assert "HGX-H100-PCF" in known(found).source


def test_it_is_summed_by_the_hour_and_apart() -> None:
    with_it, without = ran().summary(), ran(embodied=False).summary()
    hours = with_it.node_seconds / 3600
    assert with_it.embodied_gco2e == pytest.approx(PER_HOUR * hours, rel=1e-6)
    assert with_it.gco2e == without.gco2e
    assert without.embodied_gco2e is None
    assert without.sci_gco2e_per_unit is None
    assert with_it.sci_gco2e_per_unit == pytest.approx(
        (known(with_it.gco2e) + PER_HOUR * hours) / with_it.done_units, rel=1e-6
    )


def test_sci_is_unknown_where_a_part_is() -> None:
    assert sci_gco2e_per_unit(1.0, 2.0, 4.0) == 0.75
    assert sci_gco2e_per_unit(None, 2.0, 4.0) is None
    assert sci_gco2e_per_unit(1.0, None, 4.0) is None
    assert sci_gco2e_per_unit(1.0, 2.0, 0.0) is None
    assert sci_text(0.00231, "steps") == "2.31 mg per step"
    assert sci_text(2.31e-6, "tokens") == "2.31 µg per token"
