"""Runs as start-up script at every boot of a node, without harm when it ran before.

It fetches costopt and the job's code from the job's store with the node's service account, checks
their digests, installs them beside the image's PyTorch and hands over to systemd. A node that
cannot start says so in the store and switches itself off: it costs no more than its disk then,
which ``costopt reconcile`` removes.

This file is sent to nodes as text: it imports nothing but the standard library and runs on Python
3.8, for the image's own interpreter may be that old.
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
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Config = dict[str, Any]

ATTEMPTS = 8
WAIT_S = float(os.environ.get("COSTOPT_START_WAIT_S", "2"))
OLDEST_PYTHON = (3, 11)
UNIT = "costopt-agent.service"
LOCAL_SSD = Path("/mnt/disks/local-ssd")
METADATA = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
DRIVER_S = float(os.environ.get("COSTOPT_DRIVER_S", "600"))


class StartError(Exception):
    """Why the node cannot start."""


def start(config: Config) -> None:
    """Bring the agent up; ``config`` is what ``costopt_gcp.startup`` wrote."""
    node_id = metadata("name")
    try:
        serve(config, node_id)
    except Exception as error:
        give_up(config, node_id, f"{type(error).__name__}: {error}")
        raise


def serve(config: Config, node_id: str) -> None:
    """Fetch, install, unpack, run. Each step is skipped where it was done before."""
    root = Path(config["root"])
    wheel = fetched(config, config["wheel"])
    bundle = fetched(config, config["bundle"])
    python = installed(config, wheel, root / f"venv-{config['wheel']['sha256'][:16]}")
    workdir = unpacked(bundle, root / f"job-{config['bundle']['sha256'][:16]}")
    run_unit(unit(config, node_id, python, workdir))
    print(f"costopt: the agent of {node_id} serves job {config['job']}")


def metadata(path: str) -> str:
    """What the instance's metadata server says."""
    url = f"http://{METADATA}/computeMetadata/v1/instance/{path}"
    headers = {"Metadata-Flavor": "Google"}
    return asked(lambda: urllib.request.Request(url, headers=headers)).decode()


def asked(request: Callable[[], urllib.request.Request]) -> bytes:
    """The answer; asked again where the network or the account is not there yet."""
    for attempt in range(ATTEMPTS):
        try:
            with urllib.request.urlopen(request(), timeout=60) as answer:
                return bytes(answer.read())
        except OSError as error:
            code = getattr(error, "code", None)
            said = f"{error} {error.read(300)!r}" if hasattr(error, "read") else str(error)
            if attempt + 1 == ATTEMPTS or code == 404:
                raise StartError(f"{request().full_url}: {said}") from error
            time.sleep(min(20.0, WAIT_S * 2.0**attempt))
    raise AssertionError


def stored(config: Config, method: str, key: str, body: bytes = b"") -> urllib.request.Request:
    """A request for an object of the job's store, with the node's own access token.

    https://cloud.google.com/storage/docs/xml-api/reference-methods
    """
    store = config["store"]
    token = json.loads(metadata("service-accounts/default/token"))["access_token"]
    parts = [store["bucket"], store["prefix"], key]
    path = "/" + urllib.parse.quote("/".join(part for part in parts if part))
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
    data = body if method == "PUT" else None
    return urllib.request.Request(store["endpoint"] + path, data, headers, method=method)


def fetched(config: Config, file: Config) -> Path:
    """The path of a file of the store, whose content is what its digest says."""
    path = Path(config["root"], "files", file["sha256"][:16], Path(file["key"]).name)
    if path.exists():
        return path
    data = asked(lambda: stored(config, "GET", file["key"]))
    found = hashlib.sha256(data).hexdigest()
    if found != file["sha256"]:
        raise StartError(f"{file['key']} has digest {found}, not {file['sha256']}")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(data)
    part.replace(path)
    return path


def installed(config: Config, wheel: Path, folder: Path) -> str:
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
    missing = [need for need in config["requirements"] if not present(python, need)]
    if missing:
        run([python, "-m", "ensurepip"])
        run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *missing])
    (folder / "ready").touch()
    return python


def base_python(candidates: list[str]) -> str:
    """The first interpreter that is there and new enough."""
    check = f"import sys, venv; sys.exit(sys.version_info < {OLDEST_PYTHON!r})"
    for candidate in candidates:
        path = shutil.which(candidate)
        if path and subprocess.call([path, "-c", check], stderr=subprocess.DEVNULL) == 0:
            return path
    raise StartError(f"no Python {OLDEST_PYTHON} or newer with venv among {candidates}")


def present(python: str, need: str) -> bool:
    """Whether a requirement such as "name==1.2" is met, in any version."""
    check = f"from importlib.metadata import version; version({need.split('==', maxsplit=1)[0]!r})"
    return subprocess.call([python, "-c", check], stderr=subprocess.DEVNULL) == 0


def unpacked(bundle: Path, folder: Path) -> Path:
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


def unit(config: Config, node_id: str, python: str, workdir: Path) -> str:
    """The agent as a service that comes up again after a crash or a reboot."""
    command = [python, "-m", "costopt.agent", "--store", config["store"]["uri"]]
    command += ["--job", config["job"], "--node", node_id]
    command += ["--notices", f"gcp:{config['notice_s']}"]
    command += ["--host", metadata("network-interfaces/0/ip")]
    command += ["--processes", str(gpus() or 1)]
    command += ["--folder", str(Path(config["root"], "agent")), "--workdir", str(workdir)]
    data = (LOCAL_SSD if LOCAL_SSD.is_dir() else Path(config["root"])) / "costopt-data"
    half_gib = shutil.disk_usage(data.parent).total // 2**31
    command += ["--data-folder", str(data), "--data-gib", str(half_gib)]
    return "\n".join(
        [
            "[Unit]",
            "Description=costopt agent",
            "After=network-online.target",
            "Wants=network-online.target",
            "StartLimitIntervalSec=0",
            "[Service]",
            "Environment=PYTHONUNBUFFERED=1",
            "ExecStart=" + " ".join(quoted(word) for word in command),
            "Restart=on-failure",
            "RestartSec=2",
            "KillMode=mixed",
            f"TimeoutStopSec={max(20, config['notice_s'] - 10)}",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )


def gpus() -> int:
    """How many GPUs there are, once the image has installed their driver on its first boot.

    A machine without GPUs shows none on its PCI bus, and nothing is waited for.
    """
    wanted = sum(1 for path in Path("/sys/bus/pci/devices").glob("*") if is_gpu(path))
    give_up_at = time.monotonic() + DRIVER_S
    found = len(list(Path("/dev").glob("nvidia[0-9]*")))
    while found < wanted and time.monotonic() < give_up_at:
        time.sleep(WAIT_S)
        found = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if found < wanted:
        raise StartError(f"the driver shows {found} of {wanted} GPUs after {DRIVER_S:.0f} s")
    return found


def is_gpu(device: Path) -> bool:
    """Whether a PCI device is a GPU of NVIDIA: vendor 0x10de, class 0x0302 or 0x0300."""
    try:
        vendor, kind = (device / "vendor").read_text(), (device / "class").read_text()
    except OSError:
        return False
    return vendor.strip() == "0x10de" and kind.strip()[:6] in ("0x0300", "0x0302")


def quoted(word: str) -> str:
    """As systemd reads it: no specifiers, no variables."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{word}"'


def run_unit(text: str) -> None:
    """Let systemd run the service, anew where it has changed."""
    path = Path(os.environ.get("COSTOPT_UNIT_DIR", "/etc/systemd/system"), UNIT)
    changed = not path.exists() or path.read_text() != text
    if changed:
        path.write_text(text)
        run(["systemctl", "daemon-reload"])
    run(["systemctl", "enable", UNIT])
    run(["systemctl", "restart" if changed else "start", UNIT])


def run(command: list[str]) -> None:
    """Raise StartError with what a failed command said."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        said = done.stdout.decode(errors="replace").strip()[-500:]
        raise StartError(f"{' '.join(command[:4])} failed: {said}")


def output(command: list[str]) -> str:
    """What a command prints."""
    return subprocess.check_output(command).decode().strip()


def give_up(config: Config, node_id: str, why: str) -> None:
    """Tell the controller why, and end the node: it costs money and does nothing.

    To the controller it is as if the command had failed, so that it does not go on for ever.
    """
    print(f"costopt: this node cannot start: {why}", file=sys.stderr)
    job, note = f"jobs/{config['job']}", f"{why}\n".encode()
    try:
        asked(lambda: stored(config, "PUT", f"{job}/nodes/{node_id}/start-failed.txt", note))
        gang = json.loads(asked(lambda: stored(config, "GET", f"{job}/gang.json")))
        if node_id in gang["members"]:
            key = f"{job}/failures/{gang['generation']:09d}.json"
            letter = json.dumps(failure(node_id, gang["generation"], why)).encode()
            asked(lambda: stored(config, "PUT", key, letter))
    finally:
        subprocess.call(["systemctl", "poweroff"])


def failure(node_id: str, generation: int, why: str) -> Config:
    """A letter to the controller, as ``costopt.agent.mailbox`` reads it."""
    return {
        "schema": 1,
        "node_id": node_id,
        "generation": generation,
        "exit_code": 127,
        "at": time.time(),
        "saved_units": 0.0,
        "message": f"the node cannot start: {why}",
        "log_path": "/var/log/syslog",
    }
