"""What a kubelet does for its pods: statuses, and in ``PodProcesses`` real processes for them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.error import HTTPError

from costopt_sim.process_host import FOLDER_VARIABLE, kill_node
from tests.support.kubernetes.api_server import ApiServer, Object
from tests.support.node_folder import ROOT

ON_NODES = "fieldSelector=spec.nodeName!="
MOUNT = re.compile(r"(?<![\w/.-])/costopt(?![\w.-])")
"""The pod's folder, wherever a command or a variable names it."""


def path_of(pod: Object, part: str = "") -> str:
    """The path of a pod."""
    metadata = pod["metadata"]
    return f"api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}{part}"


def text_of(at: datetime) -> str:
    """As the API writes times."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Kubelet:
    """Pods run as soon as they are scheduled, and are gone as soon as they are deleted."""

    def __init__(self, server: ApiServer, now: Callable[[], datetime]) -> None:
        self._server = server
        self._now = now

    def settle(self) -> None:
        """Do what is due, and wait until the scheduler has judged every pod."""
        until = time.monotonic() + 30
        while self._step() and time.monotonic() < until:
            time.sleep(0.02)

    def _step(self) -> bool:
        """Whether a pod has not been judged yet."""
        undecided = False
        for pod in self._server.items("api/v1/pods"):
            status, scheduled = pod["status"], bool(pod["spec"].get("nodeName"))
            if pod["metadata"].get("deletionTimestamp"):
                self._server.delete(path_of(pod))
            elif scheduled and status["phase"] == "Pending":
                change = {"phase": "Running", "startTime": text_of(self._now())}
                with suppress(HTTPError):
                    self._server.patch(path_of(pod, "/status"), {"status": change})
            elif not scheduled:
                undecided |= not status.get("conditions")
        return undecided


@dataclass
class Running:
    """A pod's process, and when it is killed."""

    pod: Object
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    killed_at: float = float("inf")
    ended: bool = False
    codes: dict[str, int] = field(default_factory=dict)


class QuotaController:
    """Counts what a namespace's pods use into its ResourceQuota, as kube-controller-manager does;
    the API server itself only adds."""

    def __init__(self, server: ApiServer, path: str, namespace: str) -> None:
        self._server = server
        self._path = path
        self._pods = f"api/v1/namespaces/{namespace}/pods"
        self._stop = Event()
        self._thread = Thread(target=self._run, name="quota", daemon=True)

    def __enter__(self) -> None:
        self._count()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            with suppress(OSError):
                self._count()

    def _count(self) -> None:
        hard = self._server.ask("GET", self._path)["spec"]["hard"]
        ended = ("Succeeded", "Failed")
        pods = [p for p in self._server.items(self._pods) if p["status"]["phase"] not in ended]
        used = {
            name: str(
                sum(int(_requests(pod).get(name.removeprefix("requests."), 0)) for pod in pods)
            )
            for name in hard
        }
        self._server.patch(f"{self._path}/status", {"status": {"hard": hard, "used": used}})


def _requests(pod: Object) -> Object:
    requests: Object = pod["spec"]["containers"][0]["resources"].get("requests", {})
    return requests


class PodProcesses:
    """Runs the containers of scheduled pods as processes of this machine, each in its folder.

    SIGTERM on deletion, SIGKILL after the grace; phases and exit codes as a kubelet writes them.
    """

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self.pods: dict[str, Running] = {}
        self._stop = Event()
        self._thread = Thread(target=self._run, name="kubelet", daemon=True)
        python = folder / "bin" / "python3"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        self._thread.start()

    def log(self) -> str:
        """What the pods had to say."""
        logs = sorted(self._folder.glob("*/*.log"))
        return "\n".join(f"{path}:\n{path.read_text()[-6000:]}" for path in logs)

    def close(self) -> None:
        """Leave nothing running."""
        self._stop.set()
        self._thread.join()
        for running in self.pods.values():
            self._kill(running)

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            with suppress(OSError):
                self._sync()

    def _sync(self) -> None:
        pods = self._server.items("api/v1/pods", ON_NODES)
        listed = {p["metadata"]["uid"]: p for p in pods if p["spec"].get("initContainers")}
        for uid, pod in listed.items():
            running = self.pods.get(uid)
            if running is None:
                running = self._begin(uid, pod)
            if pod["metadata"].get("deletionTimestamp"):
                self._ask_to_end(running, pod)
            self._look(running)
        for uid, running in self.pods.items():
            if uid not in listed and not running.ended:
                self._kill(running)

    def _begin(self, uid: str, pod: Object) -> Running:
        folder = self._folder / pod["metadata"]["name"]
        folder.mkdir(parents=True, exist_ok=True)
        running = self.pods[uid] = Running(pod, folder)
        self._tell(running, {"startTime": text_of(datetime.now(UTC)), "podIP": "127.0.0.1"})
        for container in pod["spec"]["initContainers"]:
            code = self._start(running, container, source=True).wait()
            running.codes[container["name"]] = code
            if code:
                self._finish(running)
                return running
        running.process = self._start(running, pod["spec"]["containers"][0], source=False)
        self._tell(running, {"phase": "Running"})
        return running

    def _start(
        self, running: Running, container: Object, *, source: bool
    ) -> subprocess.Popen[bytes]:
        """``source``: the image has costopt, as this checkout."""
        site = [path for path in sys.path if path.endswith("site-packages")]
        paths = [str(ROOT), str(ROOT / "providers"), *site] if source else site
        known = {"metadata.name": running.folder.name, "status.podIP": "127.0.0.1"}
        env = {
            each["name"]: self._mapped(
                running, each.get("value") or known[each["valueFrom"]["fieldRef"]["fieldPath"]]
            )
            for each in container["env"]
        }
        with (running.folder / f"{container['name']}.log").open("ab") as log:
            return subprocess.Popen(
                [self._mapped(running, word) for word in container["command"]],
                env={
                    "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}",
                    "PYTHONPATH": os.pathsep.join(paths),
                    FOLDER_VARIABLE: str(running.folder),
                    **env,
                },
                cwd=running.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _mapped(self, running: Running, text: str) -> str:
        return MOUNT.sub(str(running.folder / "volume"), text)

    def _ask_to_end(self, running: Running, pod: Object) -> None:
        if running.process is None or running.ended:
            self._server.delete(path_of(pod))
        elif running.killed_at == float("inf"):
            running.killed_at = time.monotonic() + pod["metadata"]["deletionGracePeriodSeconds"]
            with suppress(ProcessLookupError):
                running.process.send_signal(signal.SIGTERM)

    def _look(self, running: Running) -> None:
        if running.process is None or running.ended:
            return
        if time.monotonic() >= running.killed_at:
            self._kill(running)
        if running.process.poll() is not None:
            running.codes["train"] = running.process.returncode
            self._kill(running)
            self._finish(running)

    def _kill(self, running: Running) -> None:
        if running.process is not None:
            kill_node(running.folder, running.process.pid)
            running.process.wait()
        running.ended = True

    def _finish(self, running: Running) -> None:
        running.ended = True
        failed = any(running.codes.values())
        at = text_of(datetime.now(UTC))
        log = running.folder / "train.log"
        said = "\n".join(log.read_text().splitlines()[-20:]) if log.exists() else ""

        def ended(name: str, message: str) -> Object:
            end = {"exitCode": abs(running.codes[name]), "finishedAt": at, "message": message}
            fixed = {"image": "", "imageID": "", "ready": False, "restartCount": 0}
            return {"name": name, "state": {"terminated": end}, **fixed}

        inits = [ended(name, "") for name in running.codes if name != "train"]
        mains = [ended("train", said)] if "train" in running.codes else []
        status: dict[str, Any] = {
            "phase": "Failed" if failed else "Succeeded",
            "initContainerStatuses": inits,
            "containerStatuses": mains,
        }
        self._tell(running, status)

    def _tell(self, running: Running, status: Object) -> None:
        with suppress(HTTPError):
            self._server.patch(path_of(running.pod, "/status"), {"status": status})
