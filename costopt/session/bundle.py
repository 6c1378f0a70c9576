"""A job's folder as one file for its nodes, the same bytes for the same content."""

from __future__ import annotations

import gzip
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from costopt.domain.errors import SpecError
from costopt.session.ignore import IGNORE_FILE, IgnoreList

MAX_BYTES = 512 * 2**20
"""Code, not data: a larger folder is most likely a mistake, and each node would fetch it."""
LEVEL = 6


def write_bundle(workdir: Path, target: Path, most_bytes: int = MAX_BYTES) -> None:
    """Write the folder to ``target`` as a tar.gz.

    Members come in order of name, without times and owners, so that a digest of the file names its
    content. Raises SpecError where the folder is missing, larger than ``most_bytes``, cannot be
    read, or holds a link that leaves it.
    """
    if not workdir.is_dir():
        raise SpecError(
            f"workdir {workdir} is no folder",
            hint="correct workdir in the job file",
            code="not_a_folder",
        )
    ignored = IgnoreList.of(workdir)
    left_bytes = most_bytes
    with (
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=LEVEL, mtime=0) as packed,
        tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in _paths(workdir, workdir, ignored):
            member = _member(tar, workdir, path)
            left_bytes -= member.size
            if left_bytes < 0:
                raise SpecError(
                    f"workdir {workdir} holds more than {most_bytes / 2**20:.0f} MiB",
                    hint=f"name data and results in {workdir / IGNORE_FILE}, one pattern a line, "
                    "and put data into the object store",
                    code="too_large",
                )
            _add(tar, member, path)


def _paths(root: Path, folder: Path, ignored: IgnoreList) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise _unreadable(folder, error) from error
    for entry in entries:
        path = Path(entry.path)
        if ignored.ignores(path.relative_to(root).as_posix()):
            continue
        if entry.is_symlink() or entry.is_file():
            yield path
        elif entry.is_dir():
            yield path
            yield from _paths(root, path, ignored)


def _member(tar: tarfile.TarFile, root: Path, path: Path) -> tarfile.TarInfo:
    if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
        raise SpecError(
            f"{path} links to {path.readlink()}, outside the job's folder, which nodes lack",
            hint=f"copy what it links to, or name it in {root / IGNORE_FILE}",
            code="outside_folder",
        )
    try:
        member = tar.gettarinfo(path, path.relative_to(root).as_posix())
    except OSError as error:
        raise _unreadable(path, error) from error
    member.mtime = 0
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def _add(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    if not member.isreg():
        tar.addfile(member)
        return
    try:
        with path.open("rb") as file:
            tar.addfile(member, file)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> SpecError:
    return SpecError(
        f"cannot bundle {path}: {error.strerror or error}",
        hint=f"make it readable, or name it in {IGNORE_FILE}",
    )
