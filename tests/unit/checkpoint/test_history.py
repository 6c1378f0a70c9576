"""Listing, verifying, tagging, going back, branching and pruning, in a folder and in a bucket."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from costopt.checkpoint.commit import Committer, SaveRequest, SupersededError
from costopt.checkpoint.history import CheckpointHistory, RetentionPolicy
from costopt.checkpoint.manifest import CheckpointName
from costopt.checkpoint.repository import CheckpointRepository
from costopt.domain.errors import CheckpointError
from tests.support.errors import has_code
from tests.support.object_stores import served_s3


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with served_s3("training") as (url, _):
        yield url


@pytest.fixture(params=["folder", "s3"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "folder":
        return str(tmp_path / "checkpoints")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", request.getfixturevalue("bucket"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return f"s3://training/{request.node.originalname}"


def committer(uri: str, keep: RetentionPolicy | None = None, **options: object) -> Committer:
    return Committer(
        CheckpointRepository.open(uri),
        1,
        keep or RetentionPolicy(3),
        **options,  # type: ignore[arg-type]
    )


def commit(by: Committer, step: int, **labels: str) -> str:
    content = memoryview(bytes([step]) * 1000)
    saving = SaveRequest(step, 1, 0.0, {"state.bin": content}, tuple(labels.items()))
    return str(by.commit(saving).name)


def by_name(uri: str) -> list[Any]:
    return [entry for entry in CheckpointHistory.open(uri).list() if entry.manifest]


def line(uri: str) -> list[str]:
    return [str(name) for name in CheckpointRepository.open(uri).candidates()[0]]


def test_the_newest_milestones_and_tagged_are_kept(uri: str) -> None:
    by = committer(uri, RetentionPolicy(2, every_steps=10))
    history = CheckpointHistory.open(uri)
    commit(by, 3)
    history.tag("step-000000003.1.0", "baseline")
    for step in (7, 10, 14, 15, 16):
        commit(by, step)
    listed = history.list()
    assert [entry.manifest.step for entry in listed if entry.manifest] == [16, 15, 10, 3]
    assert [entry.is_newest for entry in listed] == [True, False, False, False]
    assert listed[-1].tags == ("baseline",)
    assert all(entry.in_line and entry.problem is None for entry in listed)


def test_the_best_are_kept_by_a_number_in_a_label(uri: str) -> None:
    by = committer(uri, RetentionPolicy(1, best=2))
    for step, loss in enumerate(("0.5", "nan", "0.2", "0.5", "much", "0.7", "-inf"), start=1):
        commit(by, step, loss=loss)
    commit(by, 8)
    assert [CheckpointName.parse(name) for name in line(uri)] == [
        CheckpointName(1, step, 0) for step in (8, 4, 3)
    ]
    # Who goes on from here knows it as well.
    commit(Committer(by.place, 2, RetentionPolicy(1, best=1)), 9, loss="0.3")
    assert [entry.manifest.step for entry in by_name(uri)] == [9, 3]
    history = CheckpointHistory.open(uri)
    assert history.prune(RetentionPolicy(1, best=1, metric="accuracy"), apply=False) == (
        "step-000000003.1.0",
    )


def test_a_store_that_does_not_answer_costs_no_best_checkpoint(tmp_path: Path) -> None:
    by = committer(str(tmp_path), RetentionPolicy(1, best=1))
    best = commit(by, 1, loss="0.1")
    commit(by, 2, loss="0.4")
    manifest = tmp_path / best / "manifest.json"
    content = manifest.read_bytes()
    manifest.unlink()
    manifest.mkdir()
    after = Committer(CheckpointRepository.open(str(tmp_path)), 2, RetentionPolicy(1, best=1))
    with pytest.raises(CheckpointError):
        commit(after, 3, loss="0.5")
    manifest.rmdir()
    manifest.write_bytes(content)
    commit(after, 4, loss="0.6")
    assert line(str(tmp_path)) == ["step-000000004.2.0", best]


def test_damage_is_found_by_reading_all_of_it(uri: str) -> None:
    name = commit(committer(uri), 5)
    history = CheckpointHistory.open(uri)
    assert history.verify(name) is None
    history.place.store.put(f"{name}/state.bin", b"\5" * 999 + b"\4")
    assert re.findall(r"\w+\.bin|\d+", history.verify(name) or "") == ["state.bin", "0", "1000"]
    history.place.store.delete(f"{name}/manifest.json")
    assert "manifest" in str(history.verify(name))
    assert history.list()[0].problem == history.verify(name)


def test_going_back_supersedes_the_trainer_and_loses_nothing(uri: str) -> None:
    by = committer(uri)
    names = [commit(by, step) for step in (1, 2, 3)]
    history = CheckpointHistory.open(uri)
    head = history.rollback(names[0])
    assert (head.generation, line(uri)) == (2, [names[0]])
    with pytest.raises(SupersededError, match=r"generation 2\b", check=has_code("superseded")):
        commit(by, 4)
    later = Committer(by.place, 2, RetentionPolicy(3), parent=names[0])
    newest = commit(later, 2)
    assert line(uri) == [newest, names[0]]
    assert {e.name: e.tags for e in history.list()}[names[2]] == ("before-rollback-2",)
    assert history.verify(names[2]) is None
    history.rollback(names[2])
    assert line(uri)[0] == names[2]


def test_a_checkpoint_that_is_not_whole_is_not_gone_back_to(uri: str) -> None:
    by = committer(uri)
    names = [commit(by, step) for step in (1, 2)]
    history = CheckpointHistory.open(uri)
    history.place.store.put(f"{names[0]}/state.bin", b"no")
    with pytest.raises(CheckpointError, check=has_code("damaged")):
        history.rollback(names[0])
    assert line(uri)[0] == names[1]


def test_a_branch_is_a_place_of_its_own(uri: str) -> None:
    by = committer(uri)
    name = commit(by, 1)
    commit(by, 2)
    history = CheckpointHistory.open(uri)
    history.branch(name, uri + "-branch")
    branched = CheckpointHistory.open(uri + "-branch")
    assert line(uri + "-branch") == [name]
    assert branched.verify(name) is None
    commit(committer(uri + "-branch", parent=name), 9)
    assert [e.name for e in branched.list()] == ["step-000000009.1.0", name]
    assert len(history.list()) == 2
    with pytest.raises(CheckpointError, check=has_code("not_empty")):
        history.branch(name, uri + "-branch")


def test_pruning_says_first_what_it_would_remove(uri: str) -> None:
    by = committer(uri, RetentionPolicy(9))
    names = [commit(by, step) for step in range(1, 6)]
    history = CheckpointHistory.open(uri)
    history.tag(names[1], "good")
    history.place.store.put("step-000000002.1.7/state.bin", b"cut short")
    history.place.store.put("step-000000006.1.0/state.bin", b"under way")
    noticed = history.prune(RetentionPolicy(2), apply=False)
    assert noticed == (names[2], "step-000000002.1.7", names[0])
    assert len(history.list()) == 7
    assert history.prune(RetentionPolicy(2), apply=True) == noticed
    assert line(uri) == [names[4], names[3], names[1]]
    assert [entry.name for entry in history.list() if entry.problem is None] == line(uri)
    commit(by, 6)


def test_what_a_delta_needs_is_kept_and_listed(uri: str) -> None:
    by = committer(uri, RetentionPolicy(1))
    history = CheckpointHistory.open(uri)
    frozen = memoryview(bytes(1000))
    names = []
    for step in (1, 2):
        files = {"frozen.bin": frozen, "state.bin": memoryview(bytes([step]))}
        names.append(str(by.commit(SaveRequest(step, 1, 0.0, files, as_delta=True)).name))
    base, delta = names
    assert history.verify(delta) is None
    assert history.prune(RetentionPolicy(1), apply=True) == ()
    assert [entry.tags for entry in history.list()] == [(), (f"base-of:{delta}",)]
    history.rollback(base)
    later = Committer(by.place, 2, RetentionPolicy(1), parent=base)
    for step in (3, 4):
        commit(later, step)
    assert history.verify(delta) is None, "it was the newest, and is tagged"
    history.untag("before-rollback-2")
    for step in (5, 6):
        commit(later, step)
    assert [entry.tags for entry in history.list()] == [()]


def test_tags_are_not_moved_unnoticed(uri: str) -> None:
    by = committer(uri)
    first, second = commit(by, 1), commit(by, 2)
    history = CheckpointHistory.open(uri)
    history.tag(first, "v1")
    history.tag(first, "v1")
    with pytest.raises(CheckpointError, check=has_code("duplicate")):
        history.tag(second, "v1")
    history.untag("v1")
    history.tag(second, "v1")
    with pytest.raises(CheckpointError, check=has_code("not_a_tag")):
        history.tag(first, "a/b")
    with pytest.raises(CheckpointError, match=r"step-000000009\.1\.0"):
        history.tag("step-000000009.1.0", "v2")


@pytest.mark.parametrize("last", [0, -1])
def test_a_rule_keeps_at_least_one(last: int) -> None:
    with pytest.raises(ValueError, match=str(last)):
        RetentionPolicy(last)


def test_the_history_needs_no_torch() -> None:
    code = (
        "import sys, costopt.checkpoint.history, costopt.checkpoint.writer;"
        "sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'obstore', 'pydantic')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_prune_spares_what_a_cold_class_charges_anyway(tmp_path: Path) -> None:
    by = committer(str(tmp_path), RetentionPolicy(9))
    names = [commit(by, step) for step in (1, 2, 3)]
    history = CheckpointHistory.open(str(tmp_path))
    rule = RetentionPolicy(1)
    assert history.prune(rule, apply=True, cold_after_days=0) == ()
    assert history.prune(rule, apply=True, cold_after_days=1) == (names[1], names[0])
