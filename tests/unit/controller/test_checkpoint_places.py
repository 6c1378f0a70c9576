"""Two different jobs have two places, however these are written."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.checkpoint.commit import Committer, SaveRequest
from costopt.checkpoint.identity import ANOTHER_JOB
from costopt.checkpoint.repository import CheckpointRepository
from costopt.controller.checkpoint_places import (
    check_distinct_places,
    check_place,
    check_stored_identity,
    job_identity,
)
from costopt.domain.errors import SpecError
from costopt.domain.job import Job
from costopt.spec import parse_job
from costopt.spec.schedule import occurrence_document
from costopt.spec.yaml_document import parse_document
from tests.support.errors import has_code

TEXT = """\
name: NAME
work: {amount: 100, unit: steps}
deadline: 30d
throughput: {points: [{gpu: V100, gpus: 1, units_per_s: 1}]}
checkpoint: {uri: "URI"}
"""
NOW = datetime(2026, 1, 5, tzinfo=UTC)


def job(name: str, uri: str, folder: Path) -> Job:
    text = TEXT.replace("NAME", name).replace("URI", uri)
    return parse_job(parse_document(text, str(folder / f"{name}.yaml")), NOW)


SAME = [
    ("saves", "saves/"),
    ("saves", "./saves"),
    ("saves", "other/../saves"),
    ("saves", "link"),
    ("saves", "file://FOLDER/saves"),
    ("saves", "FOLDER//saves"),
    ("saves", "saves/below"),
    ("link/below", "saves"),
    ("s3://b/p", "s3://b/p/"),
    ("s3://b/p", "s3://b//p/"),
    ("s3://b/p", "s3://b/p?region=eu-west-1"),
    ("s3://b/p", "s3://b/p?endpoint=https://s3.example.com"),
    ("s3://b/p", "s3://b/%70"),
    ("s3://b", "s3://b/p"),
    ("gs://b/p", "gs://b/p/"),
]
DIFFERENT = [
    ("saves", "saves-b"),
    ("saves", "loop"),
    ("s3://b/p", "s3://b/p2"),
    ("s3://b/p", "s3://c/p"),
    ("s3://b/p", "gs://b/p"),
    ("s3://b/p", "s3://b/p?endpoint=https://minio.example.com"),
    ("s3://b/p", "FOLDER/b/p"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://s3.example.com/")
    (tmp_path / "link").symlink_to("saves")
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


@pytest.mark.parametrize(("one", "other"), SAME)
def test_one_place_is_found_however_it_is_written(folder: Path, one: str, other: str) -> None:
    jobs = [job(n, uri.replace("FOLDER", str(folder)), folder) for n, uri in
            (("a", one), ("b", other))]  # fmt: skip
    for pair in (jobs, jobs[::-1]):
        with pytest.raises(SpecError, check=has_code(ANOTHER_JOB)) as caught:
            check_distinct_places(pair)
        assert "'a'" in caught.value.message
        assert "'b'" in caught.value.message
    check_place(jobs[0], [replace(jobs[1], name="a")])


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_places_that_differ_are_allowed(folder: Path, one: str, other: str) -> None:
    check_distinct_places(
        job(n, uri.replace("FOLDER", str(folder)), folder) for n, uri in (("a", one), ("b", other))
    )


def test_tenants_that_name_a_job_alike_have_two_jobs(folder: Path) -> None:
    one = job("a", "saves", folder)
    with pytest.raises(SpecError, match="'sales'"):
        check_place(one, [replace(one, tenant="sales")])


def test_in_an_account_s_store_each_job_has_a_folder_of_its_own(folder: Path) -> None:
    check_distinct_places((job("a", "saves", folder), job("b", "saves", folder)), "s3://b/costopt")
    with pytest.raises(SpecError):
        check_distinct_places(
            (job("a", "s3://b/x", folder), job("b", "s3://b/x", folder)), "s3://b/costopt"
        )


@pytest.mark.parametrize("uri", ["saves", "s3://b/p?endpoint=https://minio.example.com"])
def test_occurrences_of_a_recurring_job_have_places_of_their_own(folder: Path, uri: str) -> None:
    text = TEXT.replace("NAME", "nightly").replace("URI", uri)
    recurring = job("nightly", uri, folder)
    occurrences = [
        parse_job(
            parse_document(
                occurrence_document(f"{text}schedule: {{cron: '0 2 * * *'}}\n", NOW.replace(day=d)),
                str(folder / "job.yaml"),
            ),
            NOW,
        )
        for d in (6, 7)
    ]
    assert len({each.checkpoint.uri for each in occurrences}) == 2
    assert all(each.checkpoint.uri.endswith("example.com") for each in occurrences) == ("?" in uri)
    check_distinct_places((recurring, *occurrences))
    with pytest.raises(SpecError):
        check_place(job("other", uri, folder), occurrences)


def test_what_a_folder_holds_is_compared_by_job_and_owner(folder: Path) -> None:
    ours = job("a", "saves", folder)
    check_stored_identity(ours, "acme")
    identity = job_identity(ours, "acme")
    place = CheckpointRepository.open(str(folder / "saves"), identity)
    Committer(place, 1).commit(SaveRequest(1, 1, 0.0, {"state.bin": memoryview(b"weights")}))
    check_stored_identity(ours, "acme")
    check_stored_identity(replace(ours, workdir="/elsewhere"), "acme")
    for other, owner in ((replace(ours, name="b"), "acme"), (ours, "another")):
        with pytest.raises(SpecError, match="'a'", check=has_code(ANOTHER_JOB)):
            check_stored_identity(other, owner)


def test_a_store_that_does_not_answer_is_left_to_the_trainer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "saves").write_text("not a folder")
    check_stored_identity(job("a", "saves", folder), "acme")
