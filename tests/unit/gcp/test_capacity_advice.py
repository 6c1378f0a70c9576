"""How likely spot capacity is, and how long it lasts, as Google says."""

from __future__ import annotations

from math import log

import pytest

from costopt.domain.errors import BadRequestError
from costopt.domain.estimate import Basis
from costopt.domain.market import CapacityType, Offer, Pool
from costopt_gcp import GcpOptions
from tests.support.gcp.account import EMPTY, REGION, SPOT, TYPE, NewAccount
from tests.support.gcp.faults import unauthorized


def offers(project: NewAccount, **options: object) -> dict[Pool, Offer]:
    provider = project.connect(None, regions=[REGION], **options)
    return {offer.pool: offer for offer in provider.offers(project.clock.now())}


def test_the_likelihood_is_a_wide_prior_of_its_zone(project: NewAccount) -> None:
    project.cloud.place.advised[SPOT.zone, TYPE] = {"obtainability": 0.8}
    found = offers(project)
    likely = found[SPOT].availability
    assert likely is not None
    assert (likely.value, likely.basis) == (0.8, Basis.PRIOR)
    assert likely.low == pytest.approx(0.5)
    assert likely.high == 1
    assert likely.observed_at == project.clock.now()
    assert found[SPOT].hazard_per_hour is None
    assert found[EMPTY].availability is None
    assert found[SPOT.with_capacity_type(CapacityType.ON_DEMAND)].availability is None


def test_no_likelihood_at_all_is_distinguished_from_none_reported(project: NewAccount) -> None:
    project.cloud.place.advised[SPOT.zone, TYPE] = {"obtainability": 0.0}
    project.cloud.place.advised[EMPTY.zone, TYPE] = {"estimatedUptime": "7200s"}
    found = offers(project)
    likely = found[SPOT].availability
    assert likely is not None
    assert (likely.value, likely.low) == (0, 0)
    assert found[EMPTY].availability is None


def test_the_uptime_is_a_hazard_where_the_history_tells_none(project: NewAccount) -> None:
    """Half of the VMs outlive it: h = ln 2 / t."""
    for zone in (SPOT.zone, EMPTY.zone):
        project.cloud.place.advised[zone, TYPE] = {"estimatedUptime": "7200s"}
    project.cloud.place.shares[EMPTY.zone, TYPE] = [0.1] * 30
    found = offers(project)
    hazard, reported = found[SPOT].hazard_per_hour, found[EMPTY].hazard_per_hour
    assert hazard is not None
    assert hazard.value == pytest.approx(log(2) / 2)
    assert hazard.basis is Basis.PRIOR
    assert hazard.low < hazard.value / 3
    assert hazard.high > hazard.value * 3
    assert reported is not None
    assert "of stopped Spot VMs" in reported.source


@pytest.mark.parametrize("scores", [{}, {"estimatedUptime": "0s"}, {"estimatedUptime": "soon"}])
def test_what_is_not_said_is_unknown(project: NewAccount, scores: dict[str, object]) -> None:
    project.cloud.place.advised[SPOT.zone, TYPE] = scores
    found = offers(project)[SPOT]
    assert (found.availability, found.hazard_per_hour) == (None, None)


def test_it_is_asked_for_once_an_hour_for_as_many_nodes_as_wanted(project: NewAccount) -> None:
    project.cloud.place.advised[SPOT.zone, TYPE] = {"obtainability": 0.8}
    calls = project.cloud.faults.calls
    provider = project.connect(regions=[REGION], advised_nodes=8)
    for _ in range(3):
        (found,) = (o for o in provider.offers(project.clock.now()) if o.pool == SPOT)
        project.clock.sleep(1000)
    assert calls["advice.capacity"] == 2, "of two zones"
    assert project.cloud.place.advised_sizes == {8}
    assert found.availability is not None
    assert "8 available" in found.availability.source
    project.clock.sleep(3600)
    provider.offers(project.clock.now())
    assert calls["advice.capacity"] == 4
    offers(project, advised_nodes=None)
    assert calls["advice.capacity"] == 4
    with pytest.raises(BadRequestError, match="advised_nodes"):
        GcpOptions.parse({"regions": [REGION], "advised_nodes": 0})


def test_offers_do_without_it(project: NewAccount) -> None:
    project.cloud.faults.on("advice.capacity", unauthorized, times=None)
    found = offers(project)[SPOT]
    assert found.price_usd_per_hour is not None
    assert found.availability is None
