"""Container runtimes for tests: podman where it works here, else one that records its commands.

The image is made of this machine's own shell and tools: nothing is fetched.
"""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TOOLS = ("/bin/sh", "/bin/cat", "/bin/sleep", "/bin/touch", "/usr/bin/env", "/usr/bin/stat")
IMAGE = "localhost/costopt-test:1"


@dataclass(frozen=True)
class Podman:
    """podman with storage of its own, and the image ``IMAGE`` in it."""

    environment: dict[str, str]

    def call(self, *arguments: str, data: bytes | None = None) -> str:
        done = subprocess.run(
            ["podman", *arguments],
            env={**os.environ, **self.environment},
            input=data,
            capture_output=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def containers(self) -> list[str]:
        """All there are, running or not."""
        return self.call("ps", "-aq").split()


@contextmanager
def podman_here(folder: Path) -> Iterator[Podman | str]:
    """podman that can run a container on this machine, or the reason why there is none.

    Sandboxes refuse to raise limits, and have cgroups that crun does not know: limits are those of
    this process, and runc is used where it is installed.
    """
    if shutil.which("podman") is None:
        yield "podman is not installed"
        return
    podman = Podman(_configuration(folder))
    try:
        podman.call("import", "-", IMAGE, data=_rootfs())
        podman.call(
            "run", "--rm", "--init", "--network=host", "--ipc=host", IMAGE, "/bin/sh", "-c", ":"
        )
    except (AssertionError, subprocess.TimeoutExpired) as error:
        yield f"podman cannot run a container here: {error}"
        return
    try:
        yield podman
    finally:
        podman.call("rm", "-fa")
        podman.call("rmi", "-fa")
        shutil.rmtree(folder / "storage", ignore_errors=True)


def _configuration(folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    files = min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    processes = min(1024, resource.getrlimit(resource.RLIMIT_NPROC)[1])
    runtime = shutil.which("runc") or shutil.which("crun") or "crun"
    (folder / "containers.conf").write_text(
        "[containers]\n"
        f'default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]\n'
        "[engine]\n"
        f'runtime = "{runtime}"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        f'init_path = "{shutil.which("catatonit") or ""}"\n'
    )
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n'
    )
    return {
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }


def _rootfs() -> bytes:
    """The tools with the libraries that they are linked to, as a tar."""
    paths = {*TOOLS}
    for tool in TOOLS:
        listed = subprocess.run(["ldd", tool], capture_output=True, text=True, check=False).stdout
        paths.update(word for word in listed.split() if word.startswith("/"))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("dev", "proc", "sys", "tmp", "etc", "run"):
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)
        for path in sorted(paths):
            data = Path(path).read_bytes()
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(data), 0o755
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


RECORDER = """#!/usr/bin/env python3
import json, os, sys
with open(os.environ["RECORDED"], "a") as file:
    file.write(json.dumps(sys.argv) + chr(10))
words = sys.argv[1:]
if words[:2] == ["image", "inspect"]:
    present = os.path.exists(os.environ["RECORDED"] + ".pulled") or "costopt-setup" in words[-1]
    print("sha256:1234") if present else sys.exit("no such image")
if words[0] == "pull" or words[0] == "--config":
    print("pulled", os.environ.get("PULL_SAYS", ""))
    open(os.environ["RECORDED"] + ".pulled", "w")
if words[0] == "run":
    images = ("sha256:", "localhost/costopt-setup")
    start = next(n for n, word in enumerate(words) if word.startswith(images))
    os.execvp(words[start + 1], words[start + 1:])
"""


@dataclass(frozen=True)
class RecordingRuntime:
    """A runtime ``name`` on the PATH that records what it is called with and runs it right here."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / self.name
        path.write_text(RECORDER)
        path.chmod(0o755)

    @property
    def record(self) -> Path:
        return self.folder / "calls.jsonl"

    def calls(self) -> list[Sequence[str]]:
        """The arguments of each call so far."""
        if not self.record.exists():
            return []
        return [json.loads(line)[1:] for line in self.record.read_text().splitlines()]
