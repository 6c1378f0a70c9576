"""What the charts of all jobs show: one colour per tenant, and what is unknown as unknown."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from costopt.daemon.pages.charts import JOBS_DRAWN, OTHERS, daily_plots, jobs_plot
from costopt.daemon.pages.layout import ChartCache
from costopt.daemon.reader import TenantReader
from costopt.domain.control import Submission
from costopt.domain.events import NodeLaunched
from costopt.render.page import Plot
from tests.support.daemon_pages import JOB, NOW, POLICY, Shown, shown
from tests.support.sample_run import START_AT, sample_events


def add(daemon: Shown, name: str, tenant: str, *, powered: bool = True) -> None:
    events = [event for event in sample_events(name) if event.at <= NOW]
    if not powered:
        events = [
            replace(e, idle_w=None, busy_w=None, pue=None) if isinstance(e, NodeLaunched) else e
            for e in events
        ]
    daemon.registry.submit(Submission(name, tenant, 0, JOB, POLICY, "/srv", START_AT, "test"))
    daemon.ledger.append(*events)
    daemon.board.publish(replace(daemon._snapshot(), budgets=()), 0.02)


def daily(daemon: Shown) -> tuple[Plot, ...]:
    reader = TenantReader(daemon.service)
    return daily_plots(ChartCache(daemon.service), reader, reader.jobs(), "")


def legend(plot: Plot) -> dict[str, str]:
    return {entry.text.rpartition(": ")[0]: entry.colour for entry in plot.drawing.legend}


def test_a_tenant_has_one_colour_in_both_charts(tmp_path: Path) -> None:
    with shown(tmp_path, fill=False) as daemon:
        for number, tenant in enumerate("abc"):
            for job in range(number + 1):
                add(daemon, f"{tenant}-{job}", tenant, powered=tenant != "c")
        dollars, energy = daily(daemon)
    assert list(legend(dollars)) == ["c", "b", "a"]
    assert legend(dollars) == legend(energy)
    texts = [entry.text for entry in energy.drawing.legend]
    assert [text.endswith(": unknown") for text in texts] == [True, False, False]
    assert energy.drawing.wide.count(">?</text>") == 1
    assert dollars.drawing.wide.count(">?</text>") == 0


def test_the_smallest_of_many_tenants_are_drawn_as_one(tmp_path: Path) -> None:
    with shown(tmp_path, fill=False) as daemon:
        for tenant in "abcdefgh":
            add(daemon, f"of-{tenant}", tenant)
        for plot in daily(daemon):
            assert list(legend(plot)) == ["a", "b", "c", "d", "e", OTHERS]
            assert len(set(legend(plot).values())) == 6


@pytest.mark.slow
def test_no_more_jobs_are_drawn_than_fit(tmp_path: Path) -> None:
    with shown(tmp_path, fill=False) as daemon:
        for number in range(JOBS_DRAWN + 2):
            add(daemon, f"job-{number:02d}", "a")
        reader = TenantReader(daemon.service)
        (plot,) = jobs_plot(ChartCache(daemon.service), reader, reader.jobs(), "")
    assert plot.drawing.wide.count(">job-") == JOBS_DRAWN
    assert " 2 older ones " in plot.lead


def test_the_far_deadline_of_an_ended_job_does_not_squeeze_the_chart(tmp_path: Path) -> None:
    with shown(tmp_path) as daemon:
        snapshot = daemon.board.snapshot
        far = NOW + timedelta(days=10)
        ended = {
            name: replace(known, deadline_at=far) if known.finished_at else known
            for name, known in snapshot.summaries.items()
        }
        reader, charts = TenantReader(daemon.service), ChartCache(daemon.service)
        (near,) = jobs_plot(charts, reader, reader.jobs(), "")
        daemon.board.publish(replace(snapshot, summaries=ended), 0.02)
        (same,) = jobs_plot(ChartCache(daemon.service), reader, reader.jobs(), "")
    hours = "14:00"
    assert f">{hours}</text>" in near.drawing.wide
    assert f">{hours}</text>" in same.drawing.wide
