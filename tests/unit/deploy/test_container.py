"""The Dockerfile keeps what it promises, as far as that shows without a container engine."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from costopt.market.history_file import write_history
from docs.generated.commands import commands
from tests.support.live_run import CALM, PATIENCE_S, UNINTERRUPTIBLE, history, wait_until
from tests.support.node_folder import ROOT
from tests.support.reserved_port import reserved_port

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
STATE = "/var/lib/costopt"


class Instruction(NamedTuple):
    """One line of a Dockerfile, continued lines joined."""

    word: str
    rest: str


def stages() -> list[list[Instruction]]:
    """The instructions from each FROM on."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text("utf-8"), flags=re.MULTILINE)
    found: list[list[Instruction]] = []
    for line in text.replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            found.append([])
        if word and found:
            found[-1].append(Instruction(word, rest.strip()))
    return found


def instructions(word: str, stage: int = -1) -> list[str]:
    """What the last stage says after a word, each time."""
    return [each.rest for each in stages()[stage] if each.word == word]


def environment() -> dict[str, str]:
    (said,) = instructions("ENV")
    return dict(part.split("=", 1) for part in shlex.split(said))


def health_check() -> list[str]:
    (said,) = instructions("HEALTHCHECK")
    command = json.loads(said.partition("CMD")[2])
    assert isinstance(command, list)
    return command


def test_nothing_runs_as_root() -> None:
    words = [each.word for each in stages()[-1]]
    (user,) = instructions("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user), "a number, so that orchestrators can check it"
    assert "RUN" not in words[words.index("USER") :]
    (made,) = instructions("RUN")
    assert f"--uid {user.partition(':')[0]} " in made


def test_it_holds_no_secret_and_fetches_nothing_unpinned() -> None:
    text = DOCKERFILE.read_text("utf-8")
    for stage in stages():
        assert not [each for each in stage if each.word == "ADD"]
    assert not re.search(r"(?i)password|secret|token|curl|wget|:latest", text)
    fetching = re.findall(r"pip install ([^\\\n]*)", text)
    assert all("--require-hashes" in said or "--no-index" in said for said in fetching), fetching
    assert instructions("COPY") == ["--from=build /opt/costopt /opt/costopt"], (
        "no source in the image"
    )


def locked() -> dict[NormalizedName, tuple[str, str]]:
    """The version of each package in the image's lock file, and what follows it."""
    text = (DOCKERFILE.parent / "requirements.txt").read_text("utf-8")
    found = re.findall(r"^(\S+)==(\S+)([^\n]*\n(?: [^\n]*\n)*)", text, flags=re.MULTILINE)
    assert len(found) == len(re.findall(r"^\S", text, flags=re.MULTILINE))
    return {canonicalize_name(name): (version, rest) for name, version, rest in found}


def test_each_package_in_it_has_a_hash_and_the_version_of_the_constraints() -> None:
    lines = map(Requirement, (ROOT / "constraints.txt").read_text("utf-8").split())
    pinned = {canonicalize_name(each.name): str(each.specifier)[2:] for each in lines}
    for name, (version, rest) in locked().items():
        assert "--hash=sha256:" in rest, name
        elsewhere = "; " in rest and not Marker(rest.split("; ")[1].split(" \\")[0]).evaluate()
        assert elsewhere or pinned[name] == version, f"{name}: run `make lock`"


def test_it_has_all_that_the_daemon_and_its_clouds_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["daemon"], *extras["aws"]]
    needed += [*extras["gcp"], *extras["kubernetes"], *extras["slurm"], "hatchling"]
    versions = locked()
    for line in needed:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        assert requirement.specifier.contains(versions[name][0]), f"{name}: run `make lock`"


def test_what_is_copied_is_enough_to_build_the_wheel(tmp_path: Path) -> None:
    context, out = tmp_path / "src", tmp_path / "out"
    ignored = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text("utf-8").split()
    for said in instructions("COPY", 0):
        *sources, place = said.split()
        for source in sources:
            assert f"!{source}" in ignored, "the context holds it"
            target = context / place / (source if place == "./" else "")
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, target)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    done = subprocess.run(command, cwd=context, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    names = set(zipfile.ZipFile(next(out.glob("*.whl"))).namelist())
    for part in ("templates/place.html.j2", "templates/pages.css", "templates/icon.svg"):
        assert f"costopt/daemon/pages/{part}" in names


def test_what_it_starts_is_a_command_that_takes_its_environment() -> None:
    (entry,), (command,) = instructions("ENTRYPOINT"), instructions("CMD")
    assert json.loads(entry) == ["costopt"]
    name, *arguments = json.loads(command)
    assert name == "daemon"
    daemon: Any = dict(commands())["costopt daemon run"]
    with daemon.make_context(name, list(arguments), auto_envvar_prefix=None) as context:
        assert context.params["mode"] == "observe", "it acts only where it is told to"
    options = {each.name for each in daemon.params}
    prefix = "COSTOPT_DAEMON_"
    for key in environment():
        if key.startswith(prefix):
            assert key.removeprefix(prefix).lower() in options
    (volume,) = instructions("VOLUME")
    assert json.loads(volume) == ["/run/costopt", STATE]
    assert environment()["COSTOPT_STATE_DIR"] == STATE
    assert instructions("STOPSIGNAL") == ["SIGTERM"]


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_tells_life_from_its_absence(status: int, code: int) -> None:
    import http.server
    import threading

    asked: list[str] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert check(server.server_port) == code
        server.shutdown()
    assert asked == ["/healthz"]
    assert check(server.server_port) == 1, "nobody answers"


def check(port: int) -> int:
    """The exit status of the image's health check, on another port."""
    _, *arguments = (part.replace("8420", str(port)) for part in health_check())
    proxied = {**os.environ, "http_proxy": "http://127.0.0.1:9"}
    return subprocess.run(
        [sys.executable, *arguments], env=proxied, capture_output=True, timeout=PATIENCE_S
    ).returncode


SEALED = """
set -e
mount --make-rprivate /
mount -t tmpfs none /var/lib
mkdir -m 0700 {state} && cp "$1" {state}/market.parquet && chown -R 10001:10001 {state}
mount -o bind,remount,ro /
mount -t tmpfs none /tmp
shift
exec setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --bounding-set=-all \
    --inh-caps=-all -- "$@"
"""


SEEN = """
set -e
mount --make-rprivate /
mount -t tmpfs none /tmp
exec setpriv --reuid 10001 --clear-groups -- "$@"
"""


READ = """
set -e
find "$@" -name __pycache__ -prune -o -type f -exec cat {} + > /dev/null
exec "$0" -c "import click"
"""


@pytest.fixture
def port() -> Iterator[int]:
    with reserved_port() as reserved:
        yield reserved


@pytest.fixture
def unshared() -> Sequence[str]:
    """A command that runs another in mounts of its own; skips where that is not allowed."""
    command = ["unshare", "--mount", "sh", "-c"]
    able = shutil.which("unshare") and shutil.which("setpriv") and os.geteuid() == 0
    probe = "mount -o bind,remount,ro / && ! touch /probe 2>&-"
    if not able or subprocess.run([*command, probe], capture_output=True).returncode:
        pytest.skip("a read-only root needs the rights to mount, and unshare and setpriv")
    return command


def test_it_lives_on_a_read_only_root_without_privileges(
    tmp_path: Path, unshared: Sequence[str], port: int
) -> None:
    write_history(history(CALM | UNINTERRUPTIBLE), tmp_path / "market.parquet")
    env = {
        **environment(),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'providers'}",
        "COSTOPT_DAEMON_LISTEN": f"127.0.0.1:{port}",
    }
    seen = subprocess.run(
        [
            *unshared, SEEN, "sh", "sh", "-c", READ, sys.executable,
            *(ROOT / name for name in ("costopt", "providers", "policies")),
        ],
        env=env, cwd="/", capture_output=True,
    )  # fmt: skip
    if seen.returncode:
        pytest.skip("others may not read this Python or costopt, or the test's /tmp hides them")
    python = [sys.executable, "-m", "costopt"]
    daemon = subprocess.Popen(
        [
            *unshared, SEALED.format(state=STATE), "sh", str(tmp_path / "market.parquet"),
            *python, *json.loads(instructions("CMD")[0]), "--market", f"{STATE}/market.parquet",
            "--speed", "60",
        ],
        env=env, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_until(lambda: check(port) == 0 or daemon.poll() is not None, "answer")
        assert daemon.poll() is None, daemon.communicate()[1]
        status = Path(f"/proc/{daemon.pid}/status").read_text("utf-8")
        assert re.search(r"^Uid:\s+10001\s+10001", status, re.MULTILINE)
        assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
        daemon.terminate()
        assert daemon.wait(PATIENCE_S) == 0
    finally:
        with suppress(ProcessLookupError):
            daemon.kill()
        daemon.communicate()


def test_a_daemon_that_hangs_ends() -> None:
    assert int(environment()["WATCHDOG_USEC"]) >= 60e6
