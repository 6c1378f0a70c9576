"""The comment of a pull request: its size, and what a change may write into it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from costopt.domain.estimate import Estimate
from costopt.domain.job import Job
from costopt.domain.market import CapacityType, Pool
from costopt.domain.plan import Allocation, Forecast, Plan, PlanStatus
from costopt.planning.plan_diff import (
    Change,
    DiffSettings,
    Figure,
    IncreaseLimit,
    JobDiff,
    PlanDiff,
    PlannedFile,
)
from costopt.planning.what_if import Scenario
from costopt.spec import load_policy
from costopt.views.diff import MAX_COMMENT, DiffReport, diff_comment, diff_outputs
from tests.support.optimize_fixtures import job as make_job

NOW = datetime(2026, 11, 22, tzinfo=UTC)
POOL = Pool("aws", "us-east-2", "us-east-2a", "p5.48xlarge", CapacityType.SPOT)
SETTINGS = DiffSettings(("jobs/*.yaml",), "cheapest")
JOB: Job = make_job()
POLICY = load_policy("cheapest")


def planned(usd: float, kwh: float | None = 10.0, stretches: int = 1) -> PlannedFile:
    forecast = Forecast(
        usd_mean=usd,
        usd_p50=usd,
        usd_p95=usd * 1.2,
        kwh=kwh,
        kwh_low=kwh,
        kwh_high=kwh,
        gco2e=None if kwh is None else kwh * 400,
        finish_p50_at=NOW,
        finish_p95_at=NOW + timedelta(hours=3),
        on_time=Estimate.of_share(200, 200, "test"),
        falls_back=Estimate.of_share(0, 200, "test"),
    )
    allocations = (Allocation(JOB.name, POOL, 2, NOW, NOW + timedelta(hours=1)),) * stretches
    plan = Plan(PlanStatus.OPTIMAL, NOW, allocations, ((JOB.name, forecast),))
    return PlannedFile(Scenario(JOB, POLICY, "policy", plan, None))


def report(*jobs: JobDiff, violations: tuple[str, ...] = (), origin: str = "a list") -> DiffReport:
    return DiffReport(PlanDiff(jobs, 0, origin), SETTINGS, "main", "HEAD", violations)


def changed(path: str = "jobs/a.yaml", stretches: int = 1) -> JobDiff:
    return JobDiff(path, Change.CHANGED, planned(100.0), planned(110.0, 12.0, stretches))


def broken(path: str, problem: str) -> JobDiff:
    return JobDiff(path, Change.CHANGED, planned(100.0), PlannedFile(None, problem))


def test_it_shows_before_after_and_the_sum() -> None:
    text = diff_comment(report(changed(), JobDiff("jobs/b.yaml", Change.ADDED, None, planned(5.0))))
    assert "cost +$15.00 (+15.0 %)" in text
    assert "| `jobs/a.yaml` | $100.00 → $110.00 (+10.0 %) | 10.0 kWh → 12.0 kWh (+20.0 %) |" in text
    assert "| `jobs/b.yaml` | new: $5.00 |" in text
    assert "| **Total** | **$100.00 → $115.00** |" in text


def test_unknown_energy_is_not_zero() -> None:
    job = JobDiff("jobs/a.yaml", Change.CHANGED, planned(100.0, None), planned(110.0, None))
    text = diff_comment(report(job))
    assert "energy unknown, CO2e unknown" in text
    assert diff_outputs(report(job))["kwh-after"] == ""
    assert IncreaseLimit(Figure.KWH, 5.0).violation(report(job).diff)


@pytest.mark.parametrize("count", [1, 300, 3000])
@pytest.mark.slow
def test_it_fits_and_loses_details_first(count: int) -> None:
    jobs = [changed(f"jobs/{number:05}{'x' * 60}.yaml", 3) for number in range(count)]
    text = diff_comment(report(*jobs))
    assert len(text) <= MAX_COMMENT
    assert ("<details>" in text) == (count == 1)
    assert "**Total**" in text or count == 1
    rows = text.count("| `jobs/")
    assert rows == count or f"and {count - rows} more" in text


HOSTILE = [
    "jobs/@octocat.yaml",
    "jobs/<img src=x onerror=alert(1)>.yaml",
    "jobs/[x](https://evil.example).yaml",
    "jobs/`@octocat`.yaml",
    "jobs/``` @octocat ```.yaml",
    "jobs/a|b.yaml\n\n/close\n\n# big",
    "jobs/a\\|b.yaml",
    "jobs/-->\u202e<script>.yaml",
    "jobs/#1 !2 %3 $4$ https://evil.example www.evil.example",
]


RENDER = MarkdownIt("commonmark", {"html": True}).enable("table")


def outside_code(text: str) -> str:
    """The comment as HTML, without what is in code: there GitHub sees mentions and references."""
    return re.sub(r"<code>.*?</code>", "<code>", RENDER.render(text), flags=re.DOTALL)


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("place", ["path", "problem", "origin", "policy"])
def test_text_from_the_change_is_only_text(hostile: str, place: str) -> None:
    def made(text: str) -> str:
        return diff_comment(
            {
                "path": report(changed(text)),
                "problem": report(broken("jobs/a.yaml", text)),
                "origin": report(changed(), origin=text),
                "policy": DiffReport(
                    report(changed()).diff, DiffSettings(("jobs/*.yaml",), text), text, "HEAD"
                ),
            }[place]
        )

    shown, harmless = (re.sub(r"costopt-diff \w+", "", made(text)) for text in (hostile, "plain"))
    assert outside_code(shown) == outside_code(harmless)
    assert not any(line.startswith("/") for line in shown.splitlines())


@given(st.text(max_size=120))
def test_any_path_is_one_code_span_in_one_row(path: str) -> None:
    shown = outside_code(diff_comment(report(changed(path))))
    assert shown == outside_code(diff_comment(report(changed())))


def test_other_files_have_another_comment() -> None:
    other = DiffReport(report(changed()).diff, DiffSettings(("b/*.yaml",), "cheapest"), "a", "b")
    assert other.tag != report(changed()).tag
    assert diff_comment(other).startswith(other.tag)
