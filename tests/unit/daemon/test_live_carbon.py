"""A daemon over a live source of intensities decides by it, and reports what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from costopt.catalog import load_catalog
from costopt.daemon.watch.metrics import HttpMetrics, MetricsEndpoint
from costopt.domain.account import UNLIMITED, Account, CarbonSource, CarbonSourceName
from costopt.domain.contracts import ElectricityContract
from costopt.domain.events import CarbonIntensityRecorded, NodeLaunched, SignalStale
from costopt.domain.market import CapacityType, Pool
from costopt.download import DownloadLimits
from costopt.energy.live import LiveCarbon
from costopt.energy.live.services import open_live_carbon
from costopt.ledger.job_account import accounts
from costopt.ledger.summary import JobState
from tests.support.carbon_services import EM_KEY, HOUR, WT_KEY, CarbonServer, daily, serve_carbon
from tests.support.daemon_fixtures import POLICY, DaemonScene
from tests.support.engine_fixtures import SPOT_A, always
from tests.support.known_figure import known
from tests.support.market_fixtures import T0

pytestmark = pytest.mark.process

LONDON = Pool("aws", "eu-west-2", "eu-west-2a", "p3.2xlarge", CapacityType.SPOT)
POOLS = (
    *(always(pool, 20, 1.0) for pool in (SPOT_A, LONDON)),
    *(always(p.with_capacity_type(CapacityType.ON_DEMAND), 20, 3.0) for p in (SPOT_A, LONDON)),
)
GREEN = POLICY.replace("greedy_spot", "adaptive") + (
    "objective: {usd: 0.05, usd_per_kwh: 0.3, usd_per_tonne_co2e: 1000, carbon_signal: average}\n"
)
LIMITS = DownloadLimits(connect_s=5.0, read_s=10.0, total_s=20.0)


@pytest.fixture
def server() -> Iterator[CarbonServer]:
    with serve_carbon(T0) as made:
        yield made


def live(
    server: CarbonServer,
    folder: Path,
    name: CarbonSourceName = CarbonSourceName.ELECTRICITY_MAPS,
    limits: DownloadLimits = LIMITS,
) -> LiveCarbon:
    key = folder / "key"
    key.write_text(WT_KEY if name is CarbonSourceName.WATTTIME else EM_KEY)
    source = CarbonSource(name, server.url, key)
    found = open_live_carbon(source, load_catalog().region, folder / "cache", limits)
    found.use(["aws/us-east-1", "aws/eu-west-2"])
    return found


@pytest.fixture
def scenes(tmp_path: Path) -> Iterator[Callable[..., DaemonScene]]:
    made: list[DaemonScene] = []

    def start(found: LiveCarbon | None, account: Account = UNLIMITED) -> DaemonScene:
        made.append(DaemonScene(tmp_path / "state", account, POOLS, live=found))
        return made[-1]

    (tmp_path / "state").mkdir()
    yield start
    for each in made:
        each.close()


def go(scene: DaemonScene, server: CarbonServer, minutes: int, step: int = 10) -> None:
    """Ticks, each after the carbon task."""
    for _ in range(0, minutes, step):
        server.now = scene.clock.now()
        scene.daemon.refresh_carbon()
        scene.go(1)
        scene.clock.sleep(60 * (step - 1))


def metrics(scene: DaemonScene) -> str:
    return MetricsEndpoint(scene.daemon.service, HttpMetrics(), None).text().decode()


def first_pool(scene: DaemonScene) -> Pool:
    return Pool.parse(scene.events(NodeLaunched)[0].pool)


@pytest.mark.parametrize(("london", "region"), [(None, "eu-west-2"), (900.0, "us-east-1")])
def test_a_carbon_policy_goes_where_the_live_source_says_it_is_clean(
    server: CarbonServer, tmp_path: Path, scenes: Callable[..., DaemonScene],
    london: float | None, region: str,
) -> None:  # fmt: skip
    # By annual means London is the cleaner one: 188 g/kWh, and 396 in us-east-1.
    server.by_zone = {"GB": lambda _: london or 0.0, "US-MIDA-PJM": lambda _: 40.0}
    scene = scenes(live(server, tmp_path) if london is not None else None)
    scene.submit("one", hours=1.0, deadline="3h", policy=GREEN)
    go(scene, server, 40)
    assert first_pool(scene).region == region


def test_a_carbon_policy_waits_for_the_clean_hours_of_the_forecast(
    server: CarbonServer, tmp_path: Path, scenes: Callable[..., DaemonScene]
) -> None:
    clean_at = T0 + 6 * HOUR
    server.intensity = lambda at: 20.0 if clean_at <= at < clean_at + 4 * HOUR else 800.0
    scene = scenes(live(server, tmp_path))
    scene.submit("one", hours=1.0, deadline="20h", policy=GREEN)
    go(scene, server, 9 * 60)
    (launched,) = scene.events(NodeLaunched)
    assert clean_at <= launched.launched_at < clean_at + 2 * HOUR
    assert scene.job().summary.state is JobState.FINISHED
    per_kwh = known(scene.job().summary.gco2e) / known(scene.job().summary.kwh)
    assert per_kwh == pytest.approx(20.0)


def refuse(server: CarbonServer) -> None:
    server.status["/v3"] = 503, {}


def slow_down(server: CarbonServer) -> None:
    server.slow_s = 5.0


def grow_stale(server: CarbonServer) -> None:
    server.lag = 9 * HOUR


def change_unit(server: CarbonServer) -> None:
    server.change = lambda body: body | {"unit": "lbs/MWh"}


@pytest.mark.parametrize(
    ("fail", "said"),
    [
        (refuse, "503"),
        (slow_down, "cannot be read"),
        (grow_stale, "its newest intensity is of"),
        (change_unit, "lbs/MWh"),
    ],
)
def test_a_source_that_fails_is_reported_never_guessed_and_filled_in_later(
    server: CarbonServer, tmp_path: Path, scenes: Callable[..., DaemonScene],
    fail: Callable[[CarbonServer], None], said: str,
) -> None:  # fmt: skip
    limits = DownloadLimits(2.0, 2.0, 2.0) if fail is slow_down else LIMITS
    scene = scenes(live(server, tmp_path, limits=limits))
    scene.submit("one", hours=9.0)
    go(scene, server, 120, 5)
    assert [alert.kind for alert in scene.reader.alerts()] == []
    fail(server)
    go(scene, server, 240, 60)
    (alert,) = scene.reader.alerts()
    assert alert.kind == "carbon"
    assert said in alert.message
    assert [e.source for e in scene.events(SignalStale)] == ["electricity-maps"]
    if fail is not grow_stale:
        booked = {e.hour_at for e in scene.events(CarbonIntensityRecorded)}
        assert max(booked) <= T0 + 2 * HOUR
        assert "annual mean" in known(scene.job().summary.carbon_basis)
        (age,) = [
            float(line.split()[-1])
            for line in metrics(scene).splitlines()
            if line.startswith("costopt_carbon_intensity_age_seconds{") and "PJM" in line
        ]
        assert age > 3 * 3600
    server.status.clear()
    server.slow_s, server.lag, server.change = 0.0, timedelta(), lambda body: body
    scene.clock.sleep(3600)
    go(scene, server, 30, 10)
    assert scene.job().summary.carbon_basis == "average intensity, hourly"
    hours = [e.hour_at for e in scene.events(CarbonIntensityRecorded)]
    assert sorted(set(hours)) == [T0 + n * HOUR for n in range(len(set(hours)))]
    scene.daemon.refresh_carbon()
    refuse(server)
    scene.clock.sleep(2 * 3600)
    go(scene, server, 10)
    assert [each.kind for each in scene.reader.alerts()] == ["carbon"] * 2


def test_hours_that_arrive_after_the_end_and_a_restart_are_booked_once(
    server: CarbonServer, tmp_path: Path, scenes: Callable[..., DaemonScene]
) -> None:
    wind = ElectricityContract("wind", "aws", 10.0)
    refuse(server)
    scene = scenes(live(server, tmp_path), Account(electricity_contracts=(wind,)))
    scene.submit("one", hours=2.0)
    go(scene, server, 180)
    assert scene.job().summary.state is JobState.FINISHED
    assert scene.events(CarbonIntensityRecorded) == []
    scene.live = live(server, tmp_path)
    scene.restart()
    go(scene, server, 30)
    server.status.clear()
    scene.clock.sleep(3600)
    go(scene, server, 30)
    scene.live = live(server, tmp_path)
    scene.restart()
    go(scene, server, 30)
    booked = {e.hour_at: e.gco2e_per_kwh for e in scene.events(CarbonIntensityRecorded)}
    assert booked == {T0 + n * HOUR: daily(T0 + n * HOUR) for n in range(3)}
    assert len(scene.events(CarbonIntensityRecorded)) == 3
    summary, now = scene.job().summary, scene.clock.now()
    assert summary.carbon_basis == "average intensity, hourly"
    assert summary.market_based_gco2e == pytest.approx(known(summary.kwh) * 10)
    rows = accounts(scene.ledger)["one"].intervals(now)
    assert sum(known(row.gco2e) for row in rows) == pytest.approx(known(summary.gco2e), rel=1e-12)
    assert f"{summary.gco2e}" in metrics(scene)
    assert "costopt_market_based_emissions_grams_total" in metrics(scene)


def test_a_marginal_policy_books_the_marginal_source_and_says_so(
    server: CarbonServer, tmp_path: Path, scenes: Callable[..., DaemonScene]
) -> None:
    scene = scenes(live(server, tmp_path, CarbonSourceName.WATTTIME))
    marginal = POLICY.replace("plain", "marginal") + "objective: {carbon_signal: marginal}\n"
    scene.submit("one", hours=4.0, policy=marginal)
    scene.submit("two", hours=4.0)
    go(scene, server, 180, 5)
    one, two = scene.job("one").summary, scene.job("two").summary
    assert (one.carbon_basis, one.carbon_signal) == ("marginal intensity, hourly", "marginal")
    assert (two.carbon_basis, two.carbon_signal) == ("average intensity, annual mean", "average")
    text = metrics(scene)
    for job, signal in (("one", "marginal"), ("two", "average")):
        assert f'emissions_grams_total{{job="{job}",signal="{signal}",' in text


@pytest.mark.parametrize("name", [CarbonSourceName.ELECTRICITY_MAPS, CarbonSourceName.WATTTIME])
def test_no_file_and_no_answer_of_the_daemon_holds_the_key(
    server: CarbonServer, tmp_path: Path, scenes: Callable[..., DaemonScene],
    name: CarbonSourceName,
) -> None:  # fmt: skip
    server.body["/v3"] = f"echo {EM_KEY} {WT_KEY}".encode()
    scene = scenes(live(server, tmp_path, name))
    scene.submit("one", hours=1.0)
    go(scene, server, 90)
    scene.daemon.report()
    scene.daemon.back_up()
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "key"]
    assert len(written) > 5
    texts = [path.read_bytes() for path in written]
    texts += [metrics(scene).encode(), repr(scene.reader.alerts()).encode()]
    texts += ["\n".join(scene.said).encode()]
    for secret in (EM_KEY, WT_KEY, WT_KEY.split(":")[1]):
        assert not [text for text in texts if secret.encode() in text]
