"""The daemon's refresh of public price lists: on its schedule, logged, and in the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from costopt.controller.site import LiveSite
from costopt.daemon.daemon import Daemon
from costopt.daemon.settings import TaskInterval, TaskIntervals
from costopt.daemon.watch.metrics import HttpMetrics, MetricsEndpoint
from costopt.daemon.watch.price_lists import PriceListRefresher
from costopt.domain.control import Mode
from costopt.domain.errors import PriceListError
from costopt.prices import UpdateSettings, update_prices
from tests.support.daemon_fixtures import DaemonScene, unhurried
from tests.support.errors import has_code
from tests.support.price_lists import NAMES, SPOT_FEED, Answer, PriceListServer, serve_price_lists
from tests.support.price_quotes import quote, write_cache

EVERY = TaskIntervals(price_lists=TaskInterval(3600.0))
SPOT = "aws/us-east-1/us-east-1*/g4dn.xlarge/spot"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PriceListServer]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serve_price_lists() as server:
        yield server


def refresher(server: PriceListServer, said: list[str]) -> PriceListRefresher:
    settings = UpdateSettings(mirrors=(server.url,))
    return PriceListRefresher(said.append, lambda: update_prices(settings))


class CloudScene(DaemonScene):
    """As a daemon over a cloud: its prices have to be asked for."""

    def _site(self) -> LiveSite:
        return replace(super()._site(), market=None)


def task_names(scene: DaemonScene, schedule: TaskIntervals) -> list[str]:
    settings = replace(unhurried(scene.folder, Mode.OBSERVE), schedule=schedule)
    daemon = Daemon(
        scene._site(), scene.registry, scene.ledger, scene.account, settings, scene.said.append
    )
    return [task.name for task in daemon.tasks()]


def test_a_daemon_over_a_cloud_refreshes_on_its_schedule(tmp_path: Path) -> None:
    scene = CloudScene(tmp_path)
    try:
        assert "price lists" in task_names(scene, EVERY)
        assert "price lists" not in task_names(scene, TaskIntervals())
    finally:
        scene.close()


def test_a_simulation_fetches_nothing(tmp_path: Path) -> None:
    scene = DaemonScene(tmp_path)
    try:
        assert "price lists" not in task_names(scene, EVERY)
    finally:
        scene.close()


def test_a_failed_list_is_logged_once_and_its_age_stays(server: PriceListServer) -> None:
    said: list[str] = []
    lists = refresher(server, said)
    lists.refresh()
    before = lists.observed_at()
    assert set(before) == set(NAMES)
    assert not said
    server.answers[SPOT_FEED] = Answer(b"", 500)
    lists.refresh()
    lists.refresh()
    assert len(said) == 1
    assert "aws-spot" in said[0]
    assert lists.observed_at()["aws-spot"] == before["aws-spot"]


def test_a_refresh_of_which_nothing_succeeds_is_a_failed_run(server: PriceListServer) -> None:
    server.answers.clear()
    with pytest.raises(PriceListError, check=has_code("none_refreshed")):
        refresher(server, []).refresh()


def test_the_age_of_each_list_is_a_metric_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cache(tmp_path / "cache", monkeypatch, quote(SPOT, 0.2), quote(SPOT, 0.2, "aws-spot"))
    scene = DaemonScene(tmp_path)
    try:
        endpoint = MetricsEndpoint(scene.daemon.service, HttpMetrics(), None)
        lines = [
            line.split()
            for line in endpoint.text().decode().splitlines()
            if line.startswith("costopt_price_list_age_seconds{")
        ]
    finally:
        scene.close()
    ages = {name: float(age) for name, age in lines}
    assert set(ages) == {
        f'costopt_price_list_age_seconds{{source="{name}"}}' for name in ("dstack-aws", "aws-spot")
    }
    assert all(7200 <= age < 7300 for age in ages.values())
