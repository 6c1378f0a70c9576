"""What the place of the data and the checkpoints adds to a start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.cached_data import GIGABITS_PER_GIB, CachedData
from costopt.domain.job import DataLocation, Job
from costopt.domain.market import Pool
from costopt.domain.plan import PlanStatus
from costopt.domain.storage import StoragePrice
from costopt.domain.transfers import Transfer, checkpoint_storage
from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.offer_columns import transfer_costs
from costopt.optimize.planner import plan
from costopt.optimize.request import PlanRequest
from tests.support.optimize_fixtures import (
    configuration_table,
    job,
    machine,
    offer,
    plan_request,
    pool,
)

HERE, THERE = pool("a", region="r1"), pool("a", region="r2")
COSTS = Transfer(0.05, None, "made up")
BOTH_WAYS = {("aws/r1", "aws/r2"): COSTS, ("aws/r2", "aws/r1"): Transfer(0.02, None, "made up")}


def with_data(size_gib: float, region: str | None = "aws/r1") -> Job:
    return replace(job(), data=DataLocation("s3://data", size_gib, region))


def with_checkpoint(size_gib: float, region: str | None = "aws/r1") -> Job:
    one = job()
    return replace(one, checkpoint=replace(one.checkpoint, size_gib=size_gib, region=region))


def request_of(
    one: Job,
    *,
    transfers: dict[tuple[str, str], Transfer] | None = None,
    prices: tuple[float, float] = (10.0, 10.0),
    hazard: float = 0.0,
) -> PlanRequest:
    places = zip((HERE, THERE), prices, strict=True)
    offers = [offer(where, price, hazard=hazard) for where, price in places]
    return plan_request(offers, one, transfers=BOTH_WAYS if transfers is None else transfers)


def row_of(table: ConfigurationTable, where: Pool) -> int:
    return next(i for i in range(len(table)) if table.parts(i)[0][0] == where)


@pytest.mark.parametrize(
    "one", [job(), with_data(0.0), with_data(500.0, None), with_checkpoint(50.0, None)]
)
def test_what_lies_nowhere_known_adds_nothing(one: Job) -> None:
    table = configuration_table(request_of(one, transfers={}))
    assert table.start_h == pytest.approx(one.startup_s / 3600)
    assert table.restore_h == pytest.approx(one.checkpoint.restore_s / 3600)
    assert not table.transfer_usd.any()
    assert not table.moving_usd_per_hour.any()


def test_data_of_another_region_cost_dollars_and_time_at_each_start() -> None:
    one = with_data(1000.0)
    table = configuration_table(request_of(one))
    here, there = row_of(table, HERE), row_of(table, THERE)
    hours = 1000 * 8.589934592 / 400 / 3600
    assert table.transfer_usd[[here, there]] == pytest.approx([0.0, 50.0])
    assert table.start_h[there] - table.start_h[here] == pytest.approx(hours)
    assert table.usd_per_start[there] == pytest.approx(10 * table.start_h[there] + 50)
    assert table.start_score[there] == pytest.approx(table.usd_per_start[there])
    assert table.kwh_per_start[there] > table.kwh_per_start[here]


def test_the_slower_of_both_ends_sets_the_time() -> None:
    slow = {("aws/r1", "aws/r2"): Transfer(0.05, 10.0, "made up")}
    found = transfer_costs(THERE, machine(), with_data(100.0), slow)
    assert found is not None
    assert found.hours == pytest.approx(100 * GIGABITS_PER_GIB / 10 / 3600)


def test_no_time_is_counted_where_no_speed_is_known() -> None:
    found = transfer_costs(
        THERE, replace(machine(), network_gbps=None), with_data(100.0), BOTH_WAYS
    )
    assert found is not None
    assert found.hours == 0
    assert found.usd == pytest.approx(5.0)


def test_an_interruption_pays_the_transfer_again() -> None:
    table = configuration_table(request_of(with_data(1000.0), hazard=0.1))
    here, there = row_of(table, HERE), row_of(table, THERE)
    assert table.usd_per_hour[there] == pytest.approx(table.usd_per_hour[here] + 0.1 * 50)
    assert table.paid_units_per_hour[there] < table.paid_units_per_hour[here]


def test_saves_to_another_region_pay_the_way_back() -> None:
    table = configuration_table(request_of(with_checkpoint(100.0)))
    there = row_of(table, THERE)
    saves_per_hour = 3600 / (table.interval_s[there] + 10.0)
    assert table.transfer_usd[there] == pytest.approx(5.0)
    assert table.moving_usd_per_hour[there] == pytest.approx(saves_per_hour * 100 * 0.02)


@pytest.mark.parametrize("one", [with_data(10.0), with_checkpoint(10.0)])
def test_an_offer_with_an_unknown_transfer_price_is_rejected(one: Job) -> None:
    made = plan(request_of(one, transfers={}))
    assert made.status is PlanStatus.OPTIMAL
    assert {a.pool for a in made.allocations} == {HERE}
    assert [(r.pool, r.code) for r in made.rejections] == [(THERE, "transfer_unknown")]


@pytest.mark.parametrize(("size_gib", "chosen"), [(1000.0, HERE), (10.0, THERE)])
def test_a_plan_moves_to_the_cheaper_region_only_where_the_data_are_small(
    size_gib: float, chosen: Pool
) -> None:
    made = plan(request_of(with_data(size_gib), prices=(10.0, 9.0)))
    assert {a.pool for a in made.allocations} == {chosen}


def test_the_forecast_holds_the_transfer() -> None:
    made = plan(request_of(with_data(1000.0), prices=(100.0, 10.0)))
    assert {a.pool for a in made.allocations} == {THERE}
    forecast = made.forecast_of("job")
    assert forecast is not None
    assert made.objective_usd == pytest.approx(forecast.usd_p50, rel=0.05)
    assert forecast.usd_p50 > 40 + 10 * 10


def with_cache(size_gib: float, region: str | None = "aws/r1", gbps: float | None = None) -> Job:
    return replace(job(), cache=(CachedData("s3://w", "w", size_gib, region, gbps=gbps),))


def test_a_cache_is_paid_by_each_node_and_an_interruption_pays_one() -> None:
    calm, risky = (configuration_table(request_of(with_cache(100.0), hazard=h)) for h in (0.0, 0.1))
    here, there = row_of(calm, HERE), row_of(calm, THERE)
    nodes = calm.nodes[there]
    assert calm.transfer_usd[[here, there]] == pytest.approx([0.0, nodes * 5.0])
    assert not calm.moving_usd_per_hour.any()
    assert risky.moving_usd_per_hour[there] == pytest.approx(risky.hazard[there] * 5.0)


def test_a_cache_takes_longer_on_a_slow_network_only_as_long_as_none_was_measured() -> None:
    slow = replace(machine(), network_gbps=2.0)
    one, measured = with_cache(100.0), with_cache(100.0, gbps=1.0)
    for each, more_s in ((one, one.cache_s(slow) - one.cache_s()), (measured, 0)):
        found = transfer_costs(HERE, slow, each, {})
        assert found is not None
        assert 3600 * found.hours == pytest.approx(more_s)
        assert each.overhead_s > job().overhead_s


def test_a_cache_whose_move_has_no_price_excludes_the_pool() -> None:
    assert transfer_costs(THERE, machine(), with_cache(100.0), {}) is None


STORED = StoragePrice(0.073, 0.0146, 0.005, "made up")


def test_disks_and_kept_checkpoints_are_part_of_an_hour_and_of_a_start() -> None:
    kept = {(here, here): Transfer(0.0, None, "free", STORED) for here in ("aws/r1", "aws/r2")}
    one = with_checkpoint(100.0)
    one = replace(one, checkpoint=replace(one.checkpoint, uri="s3://b/saves"))
    found = transfer_costs(HERE, machine(), one, {**BOTH_WAYS, **kept})
    assert found is not None
    assert found.node_hour_usd == pytest.approx(200 * 0.073 / 730)
    assert found.hour_usd == pytest.approx(3 * 100 * 0.0146 / 730)
    assert found.save_usd == pytest.approx(1600 * 0.005 / 1000)
    table = configuration_table(request_of(one, transfers={**BOTH_WAYS, **kept}))
    row = row_of(table, HERE)
    saves_per_hour = 3600 / (table.interval_s[row] + 10.0)
    hour = found.node_hour_usd * table.nodes[row] + found.hour_usd + saves_per_hour * found.save_usd
    assert table.usd_per_hour[row] == pytest.approx(10.0 * table.nodes[row] + hour)
    paid_h = table.start_h[row] - table.wait_h[row]
    nodes_usd = (10.0 + found.node_hour_usd) * table.nodes[row]
    assert table.usd_per_start[row] == pytest.approx(nodes_usd * paid_h + table.transfer_usd[row])


@pytest.mark.parametrize("uri", ["/saves", "file:///saves"])
def test_checkpoints_in_a_folder_cost_nothing(uri: str) -> None:
    one = with_checkpoint(100.0)
    one = replace(one, checkpoint=replace(one.checkpoint, uri=uri))
    assert checkpoint_storage(one, 100.0, None) == (0.0, 0.0)


def test_checkpoints_in_a_bucket_of_an_unknown_place_are_unknown() -> None:
    one = with_checkpoint(100.0, None)
    one = replace(one, checkpoint=replace(one.checkpoint, uri="s3://b/saves"))
    assert checkpoint_storage(one, 100.0, lambda *_: Transfer(0.0, None, "free", STORED)) is None
