"""Tables built with arrays and shared between jobs against one row at a time, in plain Python."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.domain.job import Resources
from costopt.domain.market import Offer
from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.demand import Demand, remaining_demand
from costopt.optimize.enumerate import TableEnumerator
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest, Quota
from costopt.optimize.zone_spreads import Parts, ZoneSpreads
from tests.support.fleet_requests import Shape, small_request


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    """Several jobs on pools in zones with and without room, some with a living gang."""
    shape = Shape(
        pools=draw(st.integers(1, 9)),
        hours=4,
        jobs=draw(st.integers(1, 3)),
        max_nodes=draw(st.integers(1, 4)),
        caps=draw(st.booleans()),
        phases=draw(st.booleans()),
        rooms=draw(st.booleans()),
        transfers=draw(st.booleans()),
        quota_gpus=draw(st.sampled_from((None, 8, 16))),
        living=draw(st.booleans()),
    )
    made = small_request(random.Random(draw(st.integers(0, 2**32))), shape)
    share = draw(st.sampled_from((None, None, 0.4, 0.6, 1.0)))
    limits = replace(made.policy.limits, max_zone_share=share)
    jobs = [
        replace(
            view,
            job=replace(
                view.job,
                tenant=draw(st.sampled_from(("red", "blue"))),
                resources=Resources(max_nodes=draw(st.integers(1, 4))),
            ),
        )
        for view in made.jobs
    ]
    return replace(
        made,
        policy=replace(made.policy, limits=limits),
        jobs=tuple(jobs),
        quotas=(*made.quotas, Quota("of red", tenant="red", max_nodes=draw(st.integers(1, 4)))),
    )


def demands(request: PlanRequest) -> Iterator[Demand]:
    """Of all jobs that are not done."""
    for view in request.jobs:
        demand = remaining_demand(view, request.now, request.policy.risk.reserve_s)
        if demand is not None:
            yield demand


@settings(max_examples=80)
@given(requests())
def test_jobs_that_share_an_enumeration_have_the_tables_that_they_have_alone(
    request: PlanRequest,
) -> None:
    together = TableEnumerator(request)
    for demand in demands(request):
        shared, refused = together.table(demand)
        alone, refused_alone = TableEnumerator(request).table(demand)
        assert refused == refused_alone
        assert_same(shared, alone)


@settings(max_examples=80)
@given(requests())
def test_every_row_is_the_sum_of_its_nodes(request: PlanRequest) -> None:
    for demand in demands(request):
        table, _ = TableEnumerator(request).table(demand)
        for row in range(len(table)):
            assert_row(request, demand, table, row)


@settings(max_examples=80)
@given(requests())
def test_the_rows_are_all_pools_and_all_even_spreads_that_may_be(request: PlanRequest) -> None:
    """Without caps, quotas and stages that no machine can do."""
    plain = replace(request.policy.limits, power_caps=False)
    asked = replace(request, quotas=(), policy=replace(request.policy, limits=plain))
    for demand in demands(asked):
        table, _ = TableEnumerator(asked).table(demand)
        sizes = range(1, demand.job.resources.max_nodes + 1)
        found = [numbered(table, row) for row in range(len(table))]
        stages = [range(s.min_nodes, s.max_nodes + 1) for s in demand.stages]
        allowed = [n for n in sizes if any(n in stage for stage in stages)]
        assert found == list(gangs(asked, table.offers, allowed))


def gangs(request: PlanRequest, offers: tuple[Offer, ...], sizes: list[int]) -> Iterator[Parts]:
    """(offer, nodes) of every gang: first the pools alone, then over the cheapest zones."""
    share = request.policy.limits.max_zone_share
    alone = [((number, n),) for number in range(len(offers)) for n in sizes]
    yield from (parts for parts in alone if stands_apart(parts, share))
    if not any(o.nodes_available is not None for o in offers) and share in (None, 1.0):
        return
    places = [(o.pool.region, o.pool.instance_type) for o in offers]
    for place in dict.fromkeys(places):
        zones = [number for number in range(len(offers)) if places[number] == place]
        zones.sort(key=lambda number: usd(offers[number]))
        for count in range(2, len(zones) + 1):
            for n in sizes:
                parts = tuple(
                    (z, n // count + (i < n % count)) for i, z in enumerate(zones[:count])
                )
                if n >= count and stands_apart(parts, share):
                    yield parts


def stands_apart(parts: Parts, share: float | None) -> bool:
    """Whether no zone has more of the nodes than it may."""
    together = sum(nodes for _, nodes in parts)
    most = max(1, math.floor((share or 1.0) * together + 1e-9))
    return all(nodes <= most for _, nodes in parts)


def numbered(table: ConfigurationTable, row: int) -> Parts:
    """(offer, nodes) of a row."""
    return table.spread[row] or ((int(table.offer[row]), int(table.nodes[row])),)


def usd(offer: Offer) -> float:
    """Of a node-hour."""
    assert offer.price_usd_per_hour is not None
    return offer.price_usd_per_hour.value


def assert_row(request: PlanRequest, demand: Demand, table: ConfigurationTable, row: int) -> None:
    """The columns that are sums or extremes over a gang's nodes."""
    parts = numbered(table, row)
    members = [(table.offers[number], nodes) for number, nodes in parts]
    powers = [(request.powers[o.pool], nodes) for o, nodes in members]
    hazards = [each.hazard_per_hour for each, _ in members]
    assert table.nodes[row] == sum(nodes for _, nodes in members)
    assert table.first()[row] == parts[0][0]
    paid_usd = table.usd_per_hour[row] - table.moving_usd_per_hour[row]
    assert paid_usd == pytest.approx(sum(usd(o) * nodes for o, nodes in members))
    assert table.hazard[row] == pytest.approx(sum(h.value for h in hazards if h))
    assert table.hazard_high[row] == pytest.approx(sum(h.high for h in hazards if h))
    idle_kw = sum(p.idle_w * p.pue * n / 1000 for p, n in powers)
    assert table.idle_kw[row] == pytest.approx(idle_kw)
    cap_w = float(table.cap_w[row])
    busy_w = [
        next((cap.busy_w for cap in p.caps if cap.cap_w == cap_w), p.busy_w) for p, _ in powers
    ]
    busy_kw = sum(w * p.pue * n / 1000 for w, (p, n) in zip(busy_w, powers, strict=True))
    assert table.busy_kw[row] == pytest.approx(busy_kw)
    held = [(o.nodes_available, demand.running.get(o.pool, 0), nodes) for o, nodes in members]
    assert table.now[row] == all(room is None or n <= room + own for room, own, n in held)
    living = {o.pool: nodes for o, nodes in members}
    assert table.running[row] == (bool(demand.running) and living == dict(demand.running))


def assert_same(one: ConfigurationTable, other: ConfigurationTable) -> None:
    """Every column, to the bit."""
    assert one.offers == other.offers
    assert list(one.spread) == list(other.spread)
    for field in fields(ConfigurationTable):
        if field.name not in ("offers", "spread"):
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 8)), max_size=4).map(tuple)),
    st.data(),
)
def test_spreads_are_what_tuples_of_parts_are(rows: list[Parts], data: st.DataObject) -> None:
    spreads = ZoneSpreads.of(rows)
    assert list(spreads) == rows == [spreads[row] for row in range(len(rows))]
    picked = data.draw(st.lists(st.integers(0, len(rows) - 1))) if rows else []
    taken = spreads.take(np.array(picked, dtype=np.int64))
    assert list(taken) == [rows[row] for row in picked]
    assert list(ZoneSpreads.concatenate([taken, spreads])) == [*taken, *rows]
    figure = np.sqrt(np.arange(10, dtype=float))
    zones = [rows[row] for row in picked if rows[row]]
    per_part: Array = figure[taken.offer]
    assert taken.total(per_part * taken.nodes).tolist() == [
        sum(figure[offer] * nodes for offer, nodes in parts) for parts in zones
    ]
    assert taken.most(per_part).tolist() == [max(figure[o] for o, _ in parts) for parts in zones]
    assert taken.largest().tolist() == [max(n for _, n in parts) for parts in zones]
    assert taken.every(per_part > 1.5).tolist() == [
        all(figure[offer] > 1.5 for offer, _ in parts) for parts in zones
    ]
    assert taken.primary_offer().tolist() == [parts[0][0] for parts in zones]
