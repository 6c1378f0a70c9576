"""Values as people write them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.domain.job import Job
from costopt.spec import SpecFileError, load_job, load_policy
from costopt.spec.fields import parse_amount
from costopt.spec.moments import name_instants

NOW = datetime(2026, 5, 1, 8, tzinfo=UTC)
MODEL = "model: {params: 70B, method: lora, sequence: 4096, tokens: 150M}\n"
JOB = "name: lora\ndeadline: 48h\nrun: python train.py\ncheckpoint: s3://bucket/place\n"


def load(folder: Path, text: str) -> Job:
    (folder / "job.yaml").write_text(text)
    return load_job(folder / "job.yaml", NOW)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("70B", 70e9), ("150M", 150e6), ("1.5 k", 1500.0), ("2T", 2e12), ("3G", 3e9),
        ("$60k", 60_000.0), ("$60,000", 60_000.0), ("$ 12.50", 12.5), ("1e9", 1e9), (" 7 ", 7.0),
    ],
)  # fmt: skip
def test_an_amount(text: str, number: float) -> None:
    assert parse_amount(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["70b", "1,00", "k", "-3", "1m", "0x10", "nan", "inf", "1e", "٣"])
def test_what_is_not_an_amount_stays(text: str) -> None:
    assert parse_amount(text) == text


def test_a_job_by_a_model_card(tmp_path: Path) -> None:
    job = load(
        tmp_path, f"{JOB}{MODEL}budget: {{usd: $60k, kwh: 5k}}\nresources: {{gpu: H100:8}}\n"
    )
    assert job.work.amount == 150e6
    assert job.budget.max_usd == 60_000.0
    assert job.checkpoint.uri == "s3://bucket/place"
    assert job.resources.gpu_models == ("H100",)
    assert (job.resources.min_gpus, job.resources.max_gpus) == (8, 8)


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [("gpus: 8xH100", 8), ("gpu: 8 x H100", 8), ("gpu: H100", None), ("gpu: 'H100: 16'", 16)],
)
def test_gpus_in_one_word(resources: str, gpus: int | None, tmp_path: Path) -> None:
    named = load(tmp_path, f"{JOB}{MODEL}resources: {{{resources}}}\n").resources
    assert (named.gpu_models, named.min_gpus, named.max_gpus) == (("H100",), gpus, gpus)


@pytest.mark.parametrize(
    ("resources", "field"),
    [
        ("gpu: H1000:8", "resources.gpu"),
        ("gpu: H100:8, gpu_models: [A100]", "resources.gpu_models"),
        ("gpu: H100:8, gpus: 8", "resources.gpus"),
        ("gpu: 'H100:0'", "resources.gpu"),
        ("gpus: eight", "resources.gpus"),
    ],
)
def test_what_contradicts_is_refused(resources: str, field: str, tmp_path: Path) -> None:
    with pytest.raises(SpecFileError) as caught:
        load(tmp_path, f"{JOB}{MODEL}resources: {{{resources}}}\n")
    assert field in [problem.field for problem in caught.value.problems]


def test_dollars_of_a_policy(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("name: mine\nlimits: {max_usd: $60k, max_usd_per_hour: '$1,200'}\n")
    limits = load_policy(path).limits
    assert (limits.max_usd, limits.max_usd_per_hour) == (60_000.0, 1_200.0)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("Mon 9:00 Europe/Berlin", "2026-05-04T07:00:00Z"),
        ("Monday 09:00 UTC", "2026-05-04T09:00:00Z"),
        ("fri 10:30 Europe/Berlin", "2026-05-01T08:30:00Z"),
        ("Friday 10:00 Europe/Berlin", "2026-05-08T08:00:00Z"),
        ("Fri 9:00 America/New_York", "2026-05-01T13:00:00Z"),
        ("2026-12-01 09:00 Europe/Berlin", "2026-12-01T08:00:00Z"),
        ("2026-07-01 09:00 Europe/Berlin", "2026-07-01T07:00:00Z"),
        ("2026-12-01T09:00Z", "2026-12-01T09:00:00Z"),
        ("2026-12-01 09:00+01:00", "2026-12-01T08:00:00Z"),
    ],
)
def test_a_deadline_on_a_day(text: str, at: str, tmp_path: Path) -> None:
    job = load(tmp_path, JOB.replace("48h", text) + MODEL)
    assert job.deadline_at == datetime.fromisoformat(at)


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine's time zone."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("Mon 9:00", "2026-05-04T07:00:00Z"),
        ("Friday 10:00", "2026-05-08T08:00:00Z"),
        ("2026-12-01 09:00", "2026-12-01T08:00:00Z"),
        ("2026-07-01T09:00:30", "2026-07-01T07:00:30Z"),
    ],
)
def test_an_hour_without_a_zone_is_this_machines_and_said_back(
    text: str, at: str, tmp_path: Path
) -> None:
    job = load(tmp_path, JOB.replace("48h", text) + MODEL)
    assert job.deadline_at == datetime.fromisoformat(at)
    (note,) = job.time_notes
    assert all(part in note for part in ("deadline", text, at[:10], "CE"))
    assert not load(tmp_path, JOB.replace("48h", f"{text} UTC") + MODEL).time_notes


@pytest.mark.usefixtures("in_berlin")
def test_what_is_sent_to_another_machine_names_the_instant(tmp_path: Path) -> None:
    text = f"# mine\nstart: Sat 9:00  # early\n{JOB.replace('48h', 'Mon 9:00')}{MODEL}"
    sent = name_instants(text, "job.yaml", NOW)
    assert sent == text.replace("Sat 9:00", '"2026-05-02T07:00:00Z"').replace(
        "Mon 9:00", '"2026-05-04T07:00:00Z"'
    )
    settled = text.replace("Sat 9:00", "1h").replace("Mon 9:00", "Mon 9:00 UTC")
    assert name_instants(settled, "job.yaml", NOW) == settled


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Mon 9:00 Europe/Berlim", "there is no time zone 'Europe/Berlim'"),
        ("Mon 25:00 UTC", "expected a time"),
        ("2026-02-30 09:00 UTC", "expected a time"),
        ("Moo 9:00 UTC", "expected a duration"),
        ("0001-01-01 00:00 Asia/Tokyo", "expected a time"),
    ],
)
def test_a_day_that_cannot_be(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecFileError) as caught:
        load(tmp_path, JOB.replace("48h", text) + MODEL)
    (problem,) = caught.value.problems
    assert (problem.field, problem.message.startswith(message)) == ("deadline", True)
