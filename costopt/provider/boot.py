"""How a node comes up on its first boot, and again without harm: what all clouds share.

It fetches costopt and the job's code from the job's store with the node's own rights, checks their
digests, installs them beside the image's PyTorch and hands over to systemd. A node that cannot
start says so in the store and switches itself off.

This file is sent to nodes as text, before that of their cloud (see ``boot_script``): it imports
nothing but the standard library and runs on Python 3.8, for the image's own interpreter may be that
old.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.request
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    Config = dict[str, Any]

MAX_ATTEMPTS = 8
RETRY_DELAY_S = float(os.environ.get("COSTOPT_START_WAIT_S", "2"))
MIN_PYTHON = (3, 11)
UNIT = "costopt-agent.service"
POWEROFF_TIMER = "costopt-poweroff.timer"
MAX_UNREACHABLE_S = 3600.0
SAVE_S = 150
"""What the agent has to save in, once it is out of reach, before the machine is switched off."""
LOG_TIMEOUT_S = 10
"""Requests to write cost: at most $0.002 per node-hour."""


class BootError(Exception):
    """Why the node cannot start."""


class BootPlatform(Protocol):
    """``fast_disk`` is where images mount the machine's own disks, ``boot_log`` what a boot says.

    ``stop_s`` is how long systemd gives the agent to save in.
    """

    fast_disk: Path
    boot_log: str
    stop_s: int

    def node_id(self) -> str:
        """As the provider names this node."""
        ...

    def object_url(self, method: str, key: str, body: bytes = b"") -> urllib.request.Request:
        """A request for an object of the job's store, with the node's own rights."""
        ...

    def agent_options(self) -> list[str]:
        """Return the agent's options for notices, its address and its processes."""
        ...

    def variables(self) -> list[str]:
        """NAME=value for the agent's environment."""
        ...


def boot(make: Callable[[Config], BootPlatform], config: Config) -> None:
    """Bring the agent up; ``config`` is what ``boot_script`` wrote."""
    cloud = make(config)
    node_id = cloud.node_id()
    try:
        start_poweroff_timer(config.get("max_unreachable_s", MAX_UNREACHABLE_S))
        install_and_run(cloud, config, node_id)
    except Exception as error:
        report_failure_and_power_off(
            cloud, config["job"], node_id, f"{type(error).__name__}: {error}"
        )
        raise


def install_and_run(cloud: BootPlatform, config: Config, node_id: str) -> None:
    """Fetch, install, unpack, and let systemd run the agent."""
    command = install(cloud, config, node_id)
    command += ["--max-unreachable-s", str(config.get("max_unreachable_s", MAX_UNREACHABLE_S))]
    command += ["--renew-timer", POWEROFF_TIMER]
    run_unit(systemd_unit(command, cloud.variables(), cloud.stop_s))
    print(f"costopt: the agent of {node_id} serves job {config['job']}")


def install(cloud: BootPlatform, config: Config, node_id: str) -> list[str]:
    """Fetch, install, unpack; the agent's command. Each step is skipped where it was done."""
    root, job = Path(config["root"]), config["job"]
    wheel = download(cloud, root, config["wheel"])
    bundle = download(cloud, root, config["bundle"])
    python = create_venv(config, wheel, root / f"venv-{config['wheel']['sha256'][:16]}")
    workdir = unpack_bundle(bundle, root / f"job-{config['bundle']['sha256'][:16]}")
    command = [python, "-m", "costopt.agent", "--store", config["store"]["uri"]]
    command += ["--job", job, "--node", node_id, *cloud.agent_options()]
    command += [
        "--folder",
        str(root / "agent"),
        "--workdir",
        str(workdir),
        "--logs-s",
        str(LOG_TIMEOUT_S),
    ]
    return command + disk_options(cloud.fast_disk, root)


def get_with_retry(request: Callable[[], urllib.request.Request]) -> bytes:
    """The answer; asked again where the network or the node's rights are not there yet."""
    for attempt in range(MAX_ATTEMPTS):
        try:
            with urllib.request.urlopen(request(), timeout=60) as response:
                return bytes(response.read())
        except OSError as error:
            code = getattr(error, "code", None)
            said = f"{error} {error.read(300)!r}" if hasattr(error, "read") else str(error)
            if attempt + 1 == MAX_ATTEMPTS or code == 404:
                raise BootError(f"{request().full_url}: {said}") from error
            time.sleep(min(20.0, RETRY_DELAY_S * 2.0**attempt))
    raise AssertionError


def download(cloud: BootPlatform, root: Path, file: Config) -> Path:
    """The path of a file of the store, whose content is what its digest says."""
    path = Path(root, "files", file["sha256"][:16], Path(file["key"]).name)
    if path.exists():
        return path
    data = get_with_retry(lambda: cloud.object_url("GET", file["key"]))
    found = hashlib.sha256(data).hexdigest()
    if found != file["sha256"]:
        raise BootError(f"{file['key']} has digest {found}, not {file['sha256']}")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(data)
    part.replace(path)
    return path


def create_venv(config: Config, wheel: Path, folder: Path) -> str:
    """The interpreter of an environment that holds the wheel and what the image has."""
    python = str(folder / "bin" / "python")
    if (folder / "ready").exists():
        return python
    base = base_python(config["pythons"])
    shutil.rmtree(folder, ignore_errors=True)
    run([base, "-m", "venv", "--without-pip", str(folder)])
    here = output([python, "-c", "import site; print(site.getsitepackages()[0])"])
    beside = output([base, "-c", "import site; print('\\n'.join(site.getsitepackages()))"])
    # The image's PyTorch lives in an environment of its own, which a venv does not inherit.
    Path(here, "image.pth").write_text(f"{beside}\n")
    # Our wheel is pure Python, so unpacking it is installing it; pip alone would take seconds.
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(here)
    missing = [need for need in config["requirements"] if not is_installed(python, need)]
    if missing:
        if not is_installed(python, "pip"):  # Debian's Python has pip and no ensurepip
            run([python, "-m", "ensurepip"])
        run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *missing])
    (folder / "ready").touch()
    return python


def base_python(candidates: list[str]) -> str:
    """The first interpreter that is new enough and has PyTorch, else the first new enough."""
    check = ["-c", f"import sys, venv; sys.exit(sys.version_info < {MIN_PYTHON!r})"]
    there = [path for path in map(shutil.which, candidates) if path]
    usable = [p for p in there if subprocess.call([p, *check], stderr=subprocess.DEVNULL) == 0]
    if not usable:
        raise BootError(f"no Python {MIN_PYTHON} or newer with venv among {candidates}")
    return next((path for path in usable if is_installed(path, "torch")), usable[0])


def is_installed(python: str, need: str) -> bool:
    """Whether a requirement such as "name==1.2" is met, in any version."""
    check = f"from importlib.metadata import version; version({need.split('==', maxsplit=1)[0]!r})"
    return subprocess.call([python, "-c", check], stderr=subprocess.DEVNULL) == 0


def unpack_bundle(bundle: Path, folder: Path) -> Path:
    """The job's folder, whole or not there."""
    if folder.is_dir():
        return folder
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    with tarfile.open(bundle) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extraction_filter = staticmethod(tarfile.data_filter)
        tar.extractall(part)
    part.rename(folder)
    return folder


def disk_options(fast_disk: Path, root: Path) -> list[str]:
    """On the machine's own disks, where the image has mounted them, the job's data take up to half
    of the room and snapshots a quarter. Else data lie on the boot disk, and snapshots on none: at
    the 125 MiB/s of a gp3 volume it is no nearer than the store.

    https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html
    """
    fast = fast_disk.is_dir()
    place = fast_disk if fast else root
    gib = shutil.disk_usage(place).total // 2**30
    data = ["--data-folder", str(place / "costopt-data"), "--data-gib", str(gib // 2)]
    kept = ["--snapshot-folder", str(place / "costopt-snapshots")]
    return [*data, *kept, "--snapshot-disk-gib", str(gib // 4)] if fast else data


def systemd_unit(command: list[str], variables: list[str], stop_s: int) -> str:
    """The agent as a service that comes up again after a crash or a reboot."""
    return "\n".join(
        [
            "[Unit]",
            "Description=costopt agent",
            "After=network-online.target",
            "Wants=network-online.target",
            "StartLimitIntervalSec=0",
            "[Service]",
            *(f"Environment={systemd_quote(each)}" for each in [*variables, "PYTHONUNBUFFERED=1"]),
            "ExecStart=" + " ".join(systemd_quote(word) for word in command),
            "Restart=on-failure",
            "RestartSec=2",
            "KillMode=mixed",
            f"TimeoutStopSec={stop_s}",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )


def systemd_quote(word: str) -> str:
    """As systemd reads it: no specifiers, no variables."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{word}"'


def start_poweroff_timer(after_s: float) -> None:
    """Let systemd switch the machine off unless the agent restarts the timer in time.

    The timer counts by the monotonic clock, also where the agent was killed or never came up, and
    from the beginning after a reboot.
    """
    service = POWEROFF_TIMER.replace(".timer", ".service")
    changed = write_unit(
        service,
        "[Unit]\nDescription=end this costopt node\n"
        "[Service]\nType=oneshot\nExecStart=/usr/bin/env systemctl poweroff\n",
    )
    changed |= write_unit(
        POWEROFF_TIMER,
        "[Unit]\nDescription=end this costopt node unless its agent renews it\n"
        f"[Timer]\nOnActiveSec={after_s + SAVE_S:g}s\nAccuracySec=1s\n"
        "[Install]\nWantedBy=timers.target\n",
    )
    if changed:
        run(["systemctl", "daemon-reload"])
    run(["systemctl", "enable", POWEROFF_TIMER])
    run(["systemctl", "restart", POWEROFF_TIMER])


def write_unit(name: str, text: str) -> bool:
    """Write a unit of systemd; whether it has changed."""
    path = Path(os.environ.get("COSTOPT_UNIT_DIR", "/etc/systemd/system"), name)
    if path.exists() and path.read_text() == text:
        return False
    path.write_text(text)
    return True


def run_unit(text: str) -> None:
    """Let systemd run the service; restart it if it has changed."""
    changed = write_unit(UNIT, text)
    if changed:
        run(["systemctl", "daemon-reload"])
    run(["systemctl", "enable", UNIT])
    run(["systemctl", "restart" if changed else "start", UNIT])


def run(command: list[str]) -> None:
    """Raise StartError with what a failed command said."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        said = done.stdout.decode(errors="replace").strip()[-500:]
        raise BootError(f"{' '.join(command[:4])} failed: {said}")


def output(command: list[str]) -> str:
    """What a command prints."""
    return subprocess.check_output(command).decode().strip()


def report_failure_and_power_off(cloud: BootPlatform, job: str, node_id: str, why: str) -> None:
    """Tell the controller why, and end the node: it costs money and does nothing.

    To the controller it is as if the command had failed, so that it does not go on for ever. The
    letter is one that ``costopt.protocol.mailbox`` reads.
    """
    print(f"costopt: this node cannot start: {why}", file=sys.stderr)
    messages, note = f"jobs/{job}", f"{why}\n".encode()
    try:
        get_with_retry(
            lambda: cloud.object_url("PUT", f"{messages}/nodes/{node_id}/start-failed.txt", note)
        )
        gang = json.loads(get_with_retry(lambda: cloud.object_url("GET", f"{messages}/gang.json")))
        if node_id in gang["members"]:
            key = f"{messages}/failures/{gang['generation']:09d}.json"
            failure = {
                "schema": 1,
                "node_id": node_id,
                "generation": gang["generation"],
                "exit_code": 127,
                "at": time.time(),
                "saved_units": 0.0,
                "message": f"the node cannot start: {why}",
                "log_path": cloud.boot_log,
            }
            get_with_retry(lambda: cloud.object_url("PUT", key, json.dumps(failure).encode()))
    finally:
        subprocess.call(["systemctl", "poweroff"])
