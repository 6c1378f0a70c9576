"""A process of this machine for every instance: it boots its user data and dies with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from costopt_sim.process_host import FOLDER_VARIABLE, kill_node
from tests.support.aws import fake_systemctl
from tests.support.aws.cloud import Cloud
from tests.support.aws.overlay.instances import backend


class Bodies:
    """Each instance has a folder that stands for its disk, and its own metadata service.

    It has no credentials but those of the role that this service tells of.
    """

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        self._cloud = cloud
        self._folder = folder
        self._boots: dict[str, subprocess.Popen[bytes]] = {}
        cloud.launches.on_start = self.start
        cloud.launches.on_end = self.stop

    def start(self, region: str, instance_id: str) -> None:
        """Boot: run the user data as cloud-init does."""
        disk = self.disk(instance_id)
        for name in ("bin", "units", "opt"):
            (disk / name).mkdir(parents=True)
        fake_systemctl.install(disk / "bin")
        script = disk / "user-data"
        script.write_text(self._user_data(region, instance_id))
        self._cloud.metadata.set(instance_id, "local-ipv4", "127.0.0.1")
        with (disk / "boot.log").open("wb") as log:
            self._boots[instance_id] = subprocess.Popen(
                [sys.executable, script],
                env={
                    "PATH": f"{disk / 'bin'}:{os.environ['PATH']}",
                    "HOME": str(disk),
                    FOLDER_VARIABLE: str(disk),
                    "COSTOPT_UNIT_DIR": str(disk / "units"),
                    "COSTOPT_START_WAIT_S": "0.05",
                    "AWS_EC2_METADATA_SERVICE_ENDPOINT": self._cloud.metadata_endpoint(instance_id),
                    "AWS_ENDPOINT_URL": self._cloud.endpoint,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self, region: str, instance_id: str) -> None:
        """The machine is gone, and everything that ran on it."""
        boot = self._boots.pop(instance_id, None)
        if boot is not None:
            kill_node(self.disk(instance_id), boot.pid)
            boot.wait()

    def close(self) -> None:
        """Leave nothing running."""
        for instance_id in list(self._boots):
            self.stop("", instance_id)

    def disk(self, instance_id: str) -> Path:
        """Where everything of an instance lies."""
        return self._folder / instance_id

    def _user_data(self, region: str, instance_id: str) -> str:
        """As it was launched with, on this disk and with this Python as the image's."""
        instance = backend(region).get_instance(instance_id)
        text = instance.user_data.decode()
        text = text.replace('"root": "/opt/costopt"', f'"root": "{self.disk(instance_id) / "opt"}"')
        return str(text.replace("/opt/pytorch/bin/python3", sys.executable))
