"""What nodes download: the job's folder, and costopt itself as a wheel.

Both are uploaded to the store that nodes share with the controller. The job's folder is one archive
without ignored files, the same bytes for the same content. The wheel is built from the package that
runs here, installed or not. The provenance for checkpoints' manifests is sent to the trainers.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path

import costopt
from costopt.checkpoint.manifest import CODE_REVISION, POLICY, git_revision
from costopt.domain.errors import DISTRIBUTION, SpecError
from costopt.domain.job import Job
from costopt.domain.object_store import ObjectStore
from costopt.domain.policy import Policy
from costopt.domain.runtime import Payload, StoredFile
from costopt.store.folder import read_plain

BUNDLE = "bundle.tar.gz"
FOLDER = "payloads"
PIECE_BYTES = 1 << 20


def upload_payload(job: Job, store: ObjectStore, uri: str) -> Payload:
    """Bundle the job's folder and costopt, and put both into ``store``, which is at ``uri``.

    Each file lies below the job's name under its own digest, so what is there already is not sent
    again, what runs is never changed, and nodes need read no other job's code. Raises SpecError,
    StoreError.
    """
    with tempfile.TemporaryDirectory(prefix="costopt-payload-") as folder:
        wheel, bundle = Path(folder, wheel_name()), Path(folder, BUNDLE)
        write_wheel(wheel)
        write_bundle(Path(job.workdir), bundle)
        return Payload(
            job=job.name,
            store=uri,
            wheel=_put(store, job.name, wheel),
            bundle=_put(store, job.name, bundle),
            requirements=node_requirements(),
        )


def _put(store: ObjectStore, job: str, path: Path) -> StoredFile:
    digest = _sha256(path)
    folder = f"{FOLDER}/{job}/{digest}/"
    key = f"{folder}{path.name}"
    if key not in store.keys(folder):
        store.put_file(key, path)
    return StoredFile(key, digest, path.stat().st_size)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


MAX_BYTES = 512 * 2**20
"""Code, not data: a larger folder is most likely a mistake, and each node would fetch it."""
MAX_FILES = 100_000
MAX_IGNORE_BYTES = 1 << 20
LEVEL = 6


def write_bundle(workdir: Path, target: Path, max_bytes: int = MAX_BYTES) -> None:
    """Write the folder to ``target`` as a tar.gz.

    Members come in order of name, without times and owners, so that a digest of the file names its
    content. Raises SpecError where the folder is missing, larger than ``max_bytes``, cannot be
    read, or holds a link that leaves it.
    """
    if not workdir.is_dir():
        raise SpecError(
            f"workdir {workdir} is not a folder",
            hint="correct workdir in the job file",
            code="not_a_folder",
        )
    ignored = IgnoreList.of(workdir)
    left_bytes = max_bytes
    with (
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=LEVEL, mtime=0) as packed,
        tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as tar,
    ):
        for count, path in enumerate(_paths(workdir, workdir, ignored)):
            if count == MAX_FILES:
                raise _too_large(workdir, f"{MAX_FILES:,} files and folders")
            member = _member(tar, workdir, path)
            left_bytes -= member.size
            if left_bytes < 0:
                raise _too_large(workdir, f"{max_bytes / 2**20:.0f} MiB")
            _add(tar, member, path)


def _too_large(workdir: Path, limit: str) -> SpecError:
    return SpecError(
        f"workdir {workdir} holds more than {limit}",
        hint=f"name data and results in {workdir / IGNORE_FILE}, one pattern a line, and put data "
        "into the object store",
        code="too_large",
    )


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
    if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root.resolve()):
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
        # A file may have been replaced since its folder was listed: a FIFO would block.
        with read_plain(path) as file:
            tar.addfile(member, file)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> SpecError:
    return SpecError(
        f"cannot bundle {path}: {error.strerror or error}",
        hint=f"make it readable, or name it in {IGNORE_FILE}",
    )


IGNORE_FILE = ".costoptignore"
ALWAYS_IGNORED = (
    ".git",
    ".hg",
    ".svn",
    ".venv*",
    "venv",
    "node_modules",
    "__pycache__",
    "*.pyc",
    ".*_cache",
    ".ipynb_checkpoints",
    ".costopt",
    ".DS_Store",
    ".env",
    ".aws",
    ".ssh",
)
"""Files that can be regenerated, or must not leave this machine."""


class IgnoreList:
    """Patterns of names or of paths, as in a .gitignore file without exceptions ("!").

    A pattern without a slash in it matches any file or folder of that name; with one, a path from
    the job's folder. A folder that is ignored is ignored with all that is in it.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._patterns = tuple(pattern.rstrip("/") for pattern in (*ALWAYS_IGNORED, *patterns))

    @classmethod
    def of(cls, folder: Path) -> IgnoreList:
        """As the folder's ``.costoptignore`` says. Raises SpecError where it cannot be read."""
        path = folder / IGNORE_FILE
        try:
            with read_plain(path) as file:
                text = file.read(MAX_IGNORE_BYTES + 1)
            lines = text.decode("utf-8").splitlines()
        except FileNotFoundError:
            return cls()
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(
                f"{path} cannot be read: {getattr(error, 'strerror', None) or error}",
                hint="make it a regular file in UTF-8",
                code="unreadable",
            ) from error
        if len(text) > MAX_IGNORE_BYTES:
            raise SpecError(
                f"{path} has more than {MAX_IGNORE_BYTES:,} bytes",
                hint="name folders in place of files",
                code="too_large",
            )
        patterns = [line.strip() for line in lines]
        patterns = [pattern for pattern in patterns if pattern and not pattern.startswith("#")]
        for pattern in patterns:
            if pattern.startswith("!"):
                raise SpecError(
                    f"{path}: {pattern!r}: exceptions are not known",
                    hint="name what is to stay behind, nothing else",
                    code="exceptions",
                )
        return cls(patterns)

    def ignores(self, relative: str) -> bool:
        """Whether the file or folder at this path, with ``/``, stays behind."""
        name = relative.rpartition("/")[2]
        return any(
            fnmatchcase(relative, pattern.lstrip("/"))
            if "/" in pattern
            else fnmatchcase(name, pattern)
            for pattern in self._patterns
        )


STEM = f"{DISTRIBUTION.replace('-', '_')}-{costopt.__version__}"
"""As wheels and their metadata are named (packaging.python.org, "Binary distribution format")."""
TIME = (1980, 1, 1, 0, 0, 0)
"""The oldest that a zip can hold: the same content gives the same bytes."""
NEEDED = ("nvidia-ml-py", "obstore", "xxhash")
"""What agent, store and training runtime import beside PyTorch, which the node's image brings."""


def wheel_name() -> str:
    """As pip wants it."""
    return f"{STEM}-py3-none-any.whl"


def node_requirements() -> tuple[str, ...]:
    """What nodes need beside the wheel, in the versions of this machine where it has them."""
    return tuple(_pinned(name) for name in NEEDED)


def write_wheel(target: Path) -> None:
    """Write the wheel to ``target``. It names no requirements: nodes need few of ours."""
    package = Path(costopt.__file__).parent
    info = f"{STEM}.dist-info"
    record: list[str] = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                name = f"costopt/{path.relative_to(package).as_posix()}"
                record.append(_wheel_add(archive, name, path.read_bytes()))
        about = f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {costopt.__version__}\n"
        record.append(_wheel_add(archive, f"{info}/METADATA", about.encode()))
        wheel = "Wheel-Version: 1.0\nGenerator: costopt\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        record.append(_wheel_add(archive, f"{info}/WHEEL", wheel.encode()))
        record.append(f"{info}/RECORD,,")
        _wheel_add(archive, f"{info}/RECORD", ("\n".join(record) + "\n").encode())


def _pinned(name: str) -> str:
    try:
        return f"{name}=={metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return name


def _wheel_add(archive: zipfile.ZipFile, name: str, data: bytes) -> str:
    entry = zipfile.ZipInfo(name, TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o100644 << 16
    archive.writestr(entry, data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"


def with_provenance(job: Job, policy: Policy) -> Job:
    """Return the job with its policy's name and its folder's Git revision in its environment.

    What the job file says itself stays. A node knows neither: the folder reaches it as a bundle.
    """
    return with_code_revision(with_policy_name(job, policy))


def with_policy_name(job: Job, policy: Policy) -> Job:
    """Return the job with its policy's name in its environment, unless it names one itself."""
    return replace(job, env=tuple(({POLICY: policy.name} | dict(job.env)).items()))


def with_code_revision(job: Job) -> Job:
    """Return the job with its folder's Git revision in its environment, if there is one and the job
    does not name it itself. Git is slow, and may wait for a file system."""
    if CODE_REVISION in dict(job.env):
        return job
    revision = git_revision(Path(job.workdir))
    return job if revision is None else replace(job, env=(*job.env, (CODE_REVISION, revision)))
