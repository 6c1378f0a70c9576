"""A process of this machine for every instance: it boots its start-up script and dies with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from costopt_sim.process_host import FOLDER_VARIABLE, kill_node
from tests.support.aws import fake_systemctl
from tests.support.fake_metadata import FakeMetadata
from tests.support.gcp.cloud import Cloud


class Body:
    """A folder that stands for a node's disk, and the node's own metadata server."""

    def __init__(self, name: str, disk: Path, storage: str) -> None:
        self.name = name
        self.disk = disk
        self._storage = storage
        self.metadata = FakeMetadata()
        self.metadata.values |= {
            "name": name,
            "network-interfaces/0/ip": "127.0.0.1",
            "service-accounts/default/token": '{"access_token": "of-the-node"}',
        }

    def boot(self, script: str) -> subprocess.Popen[bytes]:
        """Run the start-up script, as the guest agent does at every boot."""
        for name in ("bin", "units", "opt"):
            (self.disk / name).mkdir(parents=True, exist_ok=True)
        fake_systemctl.install(self.disk / "bin")
        path = self.disk / "startup-script"
        script = script.replace('"root": "/opt/costopt"', f'"root": "{self.disk / "opt"}"')
        path.write_text(script.replace("/opt/conda/bin/python3", sys.executable))
        with (self.disk / "boot.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, path],
                env={
                    "PATH": f"{self.disk / 'bin'}:{os.environ['PATH']}",
                    "HOME": str(self.disk),
                    FOLDER_VARIABLE: str(self.disk),
                    "COSTOPT_UNIT_DIR": str(self.disk / "units"),
                    "COSTOPT_START_WAIT_S": "0.05",
                    "COSTOPT_DRIVER_S": "0",
                    "GCE_METADATA_HOST": self.metadata.url.removeprefix("http://"),
                    "STORAGE_EMULATOR_HOST": self._storage,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self) -> str:
        """What the node had to say."""
        logs = [self.disk / "boot.log", *sorted(self.disk.glob("units/*.log"))]
        return "\n".join(f"{path}:\n{path.read_text()}" for path in logs if path.exists())


class Bodies:
    """Each instance has a body as long as the cloud holds it."""

    def __init__(self, cloud: Cloud, folder: Path, storage: str) -> None:
        self._cloud = cloud
        self._folder = folder
        self._storage = storage
        self._boots: dict[str, tuple[Body, subprocess.Popen[bytes]]] = {}
        cloud.instances.on_start = self.start
        cloud.instances.on_end = self.stop

    def start(self, name: str) -> None:
        """Boot with the script of the instance's metadata."""
        items = self._cloud.instances.named(name)["metadata"]["items"]
        script = next(item["value"] for item in items if item["key"] == "startup-script")
        body = Body(name, self._folder / name, self._storage)
        self._boots[name] = body, body.boot(script)

    def preempt(self, name: str) -> None:
        """Tell the node that it is taken, as its metadata server does, and take it in 30 s."""
        self._cloud.interrupt(name)
        self._boots[name][0].metadata.say("preempted", "TRUE")

    def stop(self, name: str) -> None:
        """The machine is gone, and everything that ran on it."""
        found = self._boots.pop(name, None)
        if found is not None:
            body, boot = found
            kill_node(body.disk, boot.pid)
            boot.wait()
            body.metadata.stop()

    def close(self) -> None:
        """Leave nothing running."""
        for name in list(self._boots):
            self.stop(name)
