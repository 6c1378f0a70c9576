"""What nodes fetch, named by its content, and which code and policy trainers run under."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from costopt.checkpoint.manifest import detect_origin
from costopt.controller.payload import upload_payload, with_provenance, write_bundle, write_wheel
from costopt.domain.errors import SpecError
from costopt.domain.policy import Policy
from costopt.store.folder import FileStore
from tests.support.errors import has_code
from tests.support.market_fixtures import training_job


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    for name, text in {
        "train.py": "print(1)",
        "lib/part.py": "x = 1",
        "lib/__pycache__/part.pyc": "old",
        ".git/HEAD": "ref",
        ".env": "SECRET=1",
        "data/huge.bin": "x" * 1000,
        "out/keep.txt": "1",
        "out/deep/drop.log": "1",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o750)
    (folder / "link.py").symlink_to("lib/part.py")
    return folder


def names(bundle: Path) -> list[str]:
    with tarfile.open(bundle) as tar:
        return tar.getnames()


def test_a_bundle_leaves_behind_what_is_ignored(workdir: Path, tmp_path: Path) -> None:
    (workdir / ".costoptignore").write_text("# data\n/data/\n\nout/deep\n")
    bundle = tmp_path / "bundle"
    write_bundle(workdir, bundle)
    assert names(bundle) == [
        ".costoptignore", "lib", "lib/part.py", "link.py", "out", "out/keep.txt", "run.sh",
        "train.py",
    ]  # fmt: skip


def test_the_same_content_gives_the_same_bytes(workdir: Path, tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    write_bundle(workdir, one)
    os.utime(workdir / "train.py", (1, 1))
    (workdir / "train.py").chmod(0o600)
    write_bundle(workdir, two)
    assert one.read_bytes() == two.read_bytes()
    (workdir / "train.py").write_text("print(2)")
    write_bundle(workdir, three)
    assert one.read_bytes() != three.read_bytes()


def test_what_is_bundled_comes_out_again(workdir: Path, tmp_path: Path) -> None:
    os.link(workdir / "train.py", workdir / "also.py")
    write_bundle(workdir, tmp_path / "bundle")
    with tarfile.open(tmp_path / "bundle") as tar:
        tar.extractall(tmp_path / "out", filter="data")
    assert (tmp_path / "out" / "link.py").read_text() == "x = 1"
    assert (tmp_path / "out" / "also.py").read_text() == "print(1)"
    assert (tmp_path / "out" / "train.py").read_text() == "print(1)"
    assert os.access(tmp_path / "out" / "run.sh", os.X_OK)


def test_a_folder_that_is_too_large_is_refused(workdir: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, check=has_code("too_large")) as caught:
        write_bundle(workdir, tmp_path / "bundle", max_bytes=500)
    assert ".costoptignore" in (caught.value.hint or "")


def test_a_link_that_leaves_the_folder_is_refused(workdir: Path, tmp_path: Path) -> None:
    (workdir / "away").symlink_to("/etc/passwd")
    with pytest.raises(SpecError, check=has_code("outside_folder")):
        write_bundle(workdir, tmp_path / "bundle")


def test_bad_folders_and_lists_are_refused(workdir: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, check=has_code("not_a_folder")):
        write_bundle(workdir / "train.py", tmp_path / "bundle")
    (workdir / ".costoptignore").write_text("!data\n")
    with pytest.raises(SpecError, check=has_code("exceptions")):
        write_bundle(workdir, tmp_path / "bundle")
    (workdir / ".costoptignore").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, check=has_code("unreadable")):
        write_bundle(workdir, tmp_path / "bundle")


def test_the_wheel_is_whole_and_the_same_each_time(tmp_path: Path) -> None:
    wheel = tmp_path / "costopt_spot-0.0.0-py3-none-any.whl"
    write_wheel(wheel)
    first = wheel.read_bytes()
    write_wheel(wheel)
    assert wheel.read_bytes() == first
    code = "import costopt.agent.agent, costopt.store, costopt; print(costopt.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(wheel)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(wheel) in done.stdout


def test_a_payload_lies_under_its_digests_and_is_sent_once(workdir: Path, tmp_path: Path) -> None:
    job = replace(training_job(), workdir=str(workdir))
    store = FileStore(tmp_path / "store")
    payload = upload_payload(job, store, "file:///store")
    for stored in (payload.wheel, payload.bundle):
        data = store.get(stored.key)
        assert data is not None
        assert hashlib.sha256(data).hexdigest() == stored.sha256
        assert len(data) == stored.size_bytes
        assert stored.key.startswith(f"payloads/{job.name}/{stored.sha256}/")
    assert any(need.startswith("obstore==") for need in payload.requirements)
    sent = tmp_path / "store" / payload.wheel.key
    before = sent.stat().st_mtime_ns
    assert upload_payload(job, store, "file:///store") == payload
    assert sent.stat().st_mtime_ns == before


def test_a_checkpoint_can_tell_commit_and_policy(tmp_path: Path) -> None:
    for command in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "x")):
        subprocess.run(
            ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *command],
            cwd=tmp_path,
            check=True,
        )
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout.strip()
    job = replace(training_job(), workdir=str(tmp_path))
    reported = detect_origin("2", dict(with_provenance(job, Policy("thrifty")).env))
    assert (reported.code_revision, reported.policy) == (commit, "thrifty")


def test_what_the_job_says_stays(tmp_path: Path) -> None:
    env = (("COSTOPT_CODE_REVISION", "v7"), ("COSTOPT_DATA_REVISION", "d1"))
    job = replace(training_job(), workdir=str(tmp_path), env=env)
    reported = detect_origin("2", dict(with_provenance(job, Policy("thrifty")).env))
    assert (reported.code_revision, reported.data_revision) == ("v7", "d1")


@pytest.mark.process
def test_a_folder_without_git_has_no_revision(tmp_path: Path) -> None:
    job = replace(training_job(), workdir=str(tmp_path), env=())
    assert dict(with_provenance(job, Policy("thrifty")).env) == {"COSTOPT_POLICY": "thrifty"}
