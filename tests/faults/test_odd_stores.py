"""No commit is lost, and none is made twice, on stores that are not quite what they should be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from costopt.checkpoint.commit import Committer, SaveRequest
from costopt.checkpoint.lineage import LOST_WRITE
from costopt.checkpoint.repository import KEY, CheckpointRepository
from costopt.cli.main import cli
from costopt.controller.checkpoint_places import check_checkpoint_store
from costopt.domain.array import TaskArray
from costopt.domain.errors import CheckpointError, StoreError
from costopt.domain.job import CheckpointSpec, Job, Resources, WorkAmount, WorkUnit
from costopt.domain.throughput import Throughput
from costopt.protocol.tasks import TaskBoard
from costopt.store import guarantees, open_store
from costopt.store.guarantees import UNSAFE, broken_guarantees
from tests.support.errors import has_code
from tests.support.fake_gcs import FakeGcs
from tests.support.market_fixtures import T0
from tests.support.object_stores import served, served_gcs
from tests.support.odd_stores import Oddity, OddStore, served_odd_store
from tests.support.store_races import check_races

BUCKET = "training"
PLACES = count()
LACKS = {
    Oddity.NOTHING: set[str](),
    Oddity.UNQUOTED_TAGS: set[str](),
    Oddity.NO_CONDITIONS: {"put if absent", "replace by tag"},
    Oddity.NO_IF_MATCH: {"replace by tag"},
    Oddity.NO_IF_NONE_MATCH: {"put if absent"},
    Oddity.REFUSES_ALL: {"put if absent", "replace by tag"},
    Oddity.LOSES_WRITES: {"read after write", "list after write", "put if absent"},
    Oddity.STALE_READS: {"read after write", "read after replace"},
}
SAFE = [oddity for oddity, lacks in LACKS.items() if not lacks]
UNFIT = [oddity for oddity, lacks in LACKS.items() if lacks]


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[str, OddStore]]:
    with served_odd_store(BUCKET) as served:
        yield served


@pytest.fixture
def odd(service: tuple[str, OddStore], monkeypatch: pytest.MonkeyPatch) -> Iterator[OddStore]:
    url, front = service
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr(guarantees, "_checked", set())
    yield front
    front.oddity, front.lost = Oddity.NOTHING, ""


@pytest.fixture
def uri() -> str:
    return f"s3://{BUCKET}/{next(PLACES)}"


def save(uri: str, step: int = 1, generation: int = 1) -> str:
    committer = Committer(CheckpointRepository.open(uri), generation)
    files = {"state.bin": memoryview(b"weights"), "more.bin": memoryview(b"more")}
    return str(committer.commit(SaveRequest(step, 1, 0.0, files)).name)


@pytest.mark.parametrize("oddity", LACKS)
def test_what_a_store_lacks_is_named(odd: OddStore, uri: str, oddity: Oddity) -> None:
    odd.oddity = oddity
    store = open_store(uri)
    assert {each.name for each in broken_guarantees(store)} == LACKS[oddity]
    odd.oddity = Oddity.NOTHING
    assert store.keys("") == []


@pytest.mark.parametrize("oddity", UNFIT)
def test_head_and_claims_are_refused_there(odd: OddStore, uri: str, oddity: Oddity) -> None:
    odd.oddity = oddity
    with pytest.raises(CheckpointError, check=has_code(UNSAFE)) as caught:
        save(uri)
    assert all(name in caught.value.message for name in LACKS[oddity])
    with pytest.raises(StoreError, check=has_code(UNSAFE)):
        TaskBoard(open_store(uri), "array").publish(TaskArray(2))
    odd.oddity = Oddity.NOTHING
    store = open_store(uri)
    assert store.get(KEY) is None
    save(uri)


def test_a_google_cloud_storage_without_conditions_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with served(OddStore(FakeGcs((BUCKET,)), Oddity.NO_CONDITIONS)) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        found = broken_guarantees(open_store(f"gs://{BUCKET}/run"))
        assert {each.name for each in found} == {"put if absent", "replace by tag"}
        with pytest.raises(CheckpointError, check=has_code(UNSAFE)):
            save(f"gs://{BUCKET}/run")


@pytest.mark.parametrize("oddity", [Oddity.NOTHING, *UNFIT])
def test_a_job_is_refused_before_it_gets_nodes(odd: OddStore, uri: str, oddity: Oddity) -> None:
    work = WorkAmount(1.0, WorkUnit.STEPS)
    spec = CheckpointSpec(uri)
    job = Job("a", work, T0, None, Resources(), Throughput(()), spec, ())
    odd.oddity = oddity
    if oddity is Oddity.NOTHING:
        check_checkpoint_store(job)
        return
    with pytest.raises(StoreError, check=has_code(UNSAFE)):
        check_checkpoint_store(job)


@pytest.mark.parametrize("oddity", SAFE)
def test_a_store_that_is_checked_is_not_checked_again(
    odd: OddStore, uri: str, oddity: Oddity, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd.oddity = oddity
    save(uri)
    monkeypatch.setattr(guarantees, "broken_guarantees", lambda _: pytest.fail("checked again"))
    assert save(uri, step=2) == "step-000000002.1.0"


@pytest.mark.parametrize("lost", ["HEAD", "manifest.json", "state.bin", "more.bin"])
def test_a_lost_write_is_an_error_and_what_was_stored_remains(
    odd: OddStore, uri: str, lost: str
) -> None:
    first = save(uri)
    committer = Committer(CheckpointRepository.open(uri), 1)
    committer.claim()
    odd.oddity, odd.lost = Oddity.LOSES_WRITES, lost
    with pytest.raises(CheckpointError, check=has_code(LOST_WRITE)):
        committer.commit(SaveRequest(2, 1, 0.0, {
            "state.bin": memoryview(b"state"), "more.bin": memoryview(b"more")}))  # fmt: skip
    head = CheckpointRepository.open(uri).head()
    assert head is not None
    assert head.line == (first,)
    assert save(uri, step=3) == "step-000000003.1.0"


@pytest.mark.parametrize("oddity", [Oddity.NOTHING, *UNFIT])
def test_doctor_names_each_property(
    odd: OddStore, uri: str, oddity: Oddity, tmp_path: Path
) -> None:
    account = tmp_path / "account.yaml"
    account.write_text(f"kind: account\nstore: {uri}\n")
    odd.oddity = oddity
    done = CliRunner().invoke(
        cli, ["doctor", "--account", str(account), "--state-dir", str(tmp_path), "-o", "json"]
    )
    rows = {row["check"]: row["verdict"] for row in json.loads(done.stdout)["rows"]}
    named = {check.removeprefix("store: ") for check in rows if check.startswith("store: ")}
    assert named == LACKS[oddity]
    assert all(rows[f"store: {name}"] == "broken" for name in named)
    assert ("store writes" in rows) is (oddity is Oddity.NOTHING)
    assert done.exit_code == (0 if oddity is Oddity.NOTHING else 1)


@pytest.mark.slow
@pytest.mark.parametrize("oddity", SAFE)
def test_one_of_many_writers_wins_each_race(odd: OddStore, uri: str, oddity: Oddity) -> None:
    odd.oddity = oddity
    check_races(open_store(uri))


@pytest.mark.slow
def test_one_of_many_writers_wins_on_google_cloud_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    with served_gcs(BUCKET) as (url, _):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        check_races(open_store(f"gs://{BUCKET}/races"))


@pytest.mark.slow
def test_one_of_many_writers_wins_in_a_folder(tmp_path: Path) -> None:
    check_races(open_store(str(tmp_path)))
