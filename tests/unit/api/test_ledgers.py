"""costopt.LedgerReader: what a ledger holds, read without changing anything."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import costopt as co
from costopt.controller.state_dir import LEDGER
from costopt.domain.events import DecisionMade
from costopt.domain.fleet import EndCause
from costopt.ledger.sql_ledger import open_postgres_ledger, open_sqlite_ledger
from tests.support.errors import has_code
from tests.support.sample_run import finished_at, sample_events

OTHER = "other"


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    with open_sqlite_ledger(tmp_path / LEDGER) as ledger:
        ledger.append(*sample_events("train"))
        ledger.append(*sample_events(OTHER))
    return tmp_path


@pytest.fixture
def reader(state_dir: Path) -> Iterator[co.LedgerReader]:
    with co.LedgerReader(state_dir) as opened:
        yield opened


def test_a_state_directory_may_have_a_dot_in_its_name(state_dir: Path) -> None:
    named = state_dir.rename(state_dir.with_name("run-1.0"))
    with co.LedgerReader(named) as opened:
        assert opened.jobs() == ("train", OTHER)


def test_jobs_events_and_figures(reader: co.LedgerReader) -> None:
    assert reader.jobs() == ("train", OTHER)
    run = reader.job("train")
    events = list(run.events())
    assert [each.event for each in events] == list(sample_events("train"))
    after = events[4].seq
    assert [each.seq for each in run.events(after=after)] == [
        e.seq for e in events if e.seq > after
    ]
    assert len(list(reader.events())) == 2 * len(events)
    summary = run.summary()
    assert summary.finished_at == finished_at()
    assert reader.summaries()[0].usd_micros == summary.usd_micros
    assert sum(node.usd_micros for node in run.nodes()) == summary.usd_micros
    assert run.decisions() == tuple(
        each.event for each in events if isinstance(each.event, DecisionMade)
    )
    assert run.summary(summary.now + timedelta(days=1)).usd_micros == summary.usd_micros


@pytest.mark.parametrize("what", ["events", "nodes", "decisions", "spend", "progress"])
def test_frames_of_a_run(what: Any, reader: co.LedgerReader) -> None:
    run = reader.job("train")
    frame = run.to_frame(what)
    assert len(frame) > 0
    times = [name for name in map(str, frame) if name == "at" or name.endswith("_at")]
    assert times
    assert {str(getattr(frame[name].dtype, "tz", None)) for name in times} == {"UTC"}
    if what == "spend":
        assert frame["usd"].iloc[-1] == pytest.approx(run.summary().usd)
    if what == "nodes":
        assert frame["usd"].sum() == pytest.approx(run.summary().usd)
        assert set(frame["cause"].dropna()) <= {each.value for each in EndCause}


def test_a_frame_of_jobs(reader: co.LedgerReader) -> None:
    frame = reader.to_frame().set_index("job")
    assert list(frame.index) == ["train", OTHER]
    summary = reader.job("train").summary()
    assert frame.loc["train", "usd"] == pytest.approx(summary.usd)
    assert frame.loc["train", "saved_usd_share"] == pytest.approx(summary.saved_usd_share)


@pytest.mark.parametrize("what", ["spend", "energy", "progress", "nodes"])
def test_charts_of_a_run(what: Any, reader: co.LedgerReader) -> None:
    chart = reader.job("train").plot(what)
    assert chart.alt
    assert "var(--" not in chart.svg


@pytest.mark.slow
def test_a_notebook_shows_jobs_and_figures(reader: co.LedgerReader, tmp_path: Path) -> None:
    assert OTHER in reader._repr_html_()
    run = reader.job("train")
    assert "on spot" in run._repr_html_()
    assert "train" in run.write_report(tmp_path / "report.html").read_text()


def test_events_that_come_meanwhile_are_seen(state_dir: Path, reader: co.LedgerReader) -> None:
    run = reader.job("train")
    before = run.summary().usd_micros
    known = len(list(run.events()))
    with open_sqlite_ledger(state_dir / LEDGER) as writer:
        later = sample_events("train")[-1]
        writer.append(later)
    assert len(list(run.events())) == known + 1
    assert run.summary().usd_micros == before


def _files(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.name: (path.read_bytes(), path.stat().st_mode)
        for path in folder.iterdir()
        if path.suffix == ".sqlite"
    }


def test_nothing_changes(state_dir: Path) -> None:
    (state_dir / LEDGER).chmod(0o644)
    before = _files(state_dir)
    for place in (state_dir, state_dir / LEDGER, str(state_dir)):
        with co.LedgerReader(place) as opened:
            opened.job("train").to_frame()
            opened.to_frame()
    assert _files(state_dir) == before


def test_a_ledger_in_a_read_only_folder(state_dir: Path) -> None:
    root = os.geteuid() == 0
    for each in (state_dir, *state_dir.parents):
        if each == Path(tempfile.gettempdir()):
            break
        each.chmod(0o755)
    (state_dir / LEDGER).chmod(0o444)
    state_dir.chmod(0o555)
    try:
        if root:
            os.seteuid(65534)
        with co.LedgerReader(state_dir) as opened:
            assert opened.job("train").summary().finished_at == finished_at()
    finally:
        if root:
            os.seteuid(0)
        state_dir.chmod(0o755)


def test_what_cannot_be_read(state_dir: Path, reader: co.LedgerReader, tmp_path: Path) -> None:
    with pytest.raises(co.LedgerError, check=has_code("unknown_job")) as caught:
        reader.job("nothing")
    assert OTHER in (caught.value.hint or "")
    with pytest.raises(co.LedgerError, check=has_code("no_ledger")):
        co.LedgerReader(tmp_path / "nowhere")
    with pytest.raises(co.LedgerError, check=has_code("missing")):
        co.LedgerReader(tmp_path / "nowhere.sqlite")
    (tmp_path / "text.sqlite").write_text("a text that is no database at all")
    with pytest.raises(co.LedgerError):
        co.LedgerReader(tmp_path / "text.sqlite")
    with pytest.raises(co.SpecError, check=has_code("bad_argument", "place")):
        co.LedgerReader(None)  # type: ignore[arg-type]
    run = reader.job("train")
    with pytest.raises(co.SpecError, check=has_code("bad_argument", "now")):
        run.summary(datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(co.SpecError, check=has_code("bad_argument", "now")):
        run.summary(datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(co.SpecError, check=has_code("bad_argument", "what")):
        run.to_frame("weather")  # type: ignore[arg-type]
    with pytest.raises(co.SpecError, check=has_code("bad_argument", "after")):
        run.events(after=-1)
    reader.close()
    reader.close()
    with pytest.raises(co.LedgerError):
        run.summary()


def test_a_ledger_on_a_server_refuses_writes(postgres_url: str) -> None:
    with open_postgres_ledger(postgres_url) as writer:
        writer.append(*sample_events("train"))
    with co.LedgerReader(postgres_url) as opened:
        assert opened.job("train").summary().finished_at == finished_at()
        assert len(opened.to_frame()) == 1
    with (
        open_postgres_ledger(postgres_url, create=False, read_only=True) as ledger,
        pytest.raises(co.LedgerError, check=has_code("25006")),
    ):
        ledger.append(sample_events("train")[0])
