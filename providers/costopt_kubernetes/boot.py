"""A pod's part of what its container runs: install what the init container brought, then become
the agent.

This file is sent to pods as text, behind ``costopt.provider.boot`` and under the same rules: the
standard library alone, and Python 3.8.
"""

from __future__ import annotations

import os
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from costopt.provider.boot import BootError, install

if TYPE_CHECKING:
    from collections.abc import Callable

    from costopt.provider.boot import BootPlatform, Config


class PodPlatform:
    """The platform of a pod, whose environment holds its name and address."""

    fast_disk = Path("/costopt-fast")
    boot_log = "kubectl logs"
    stop_s = 0

    def __init__(self, config: Config) -> None:
        self.grace_s = config["grace_s"]
        self.gpus = config["gpus"]

    def node_id(self) -> str:
        """The pod's name."""
        return os.environ["COSTOPT_NODE"]

    def object_url(self, method: str, key: str, body: bytes = b"") -> urllib.request.Request:
        """Nothing is fetched here: the init container has the rights and a client."""
        raise BootError(f"the init container did not bring {key}: {method} {len(body)} bytes")

    def agent_options(self) -> list[str]:
        """The kubelet's SIGTERM is the notice; a trainer's process runs on each GPU."""
        save_s = str(max(5, self.grace_s - 10))
        options = ["--notices", f"sigterm:{self.grace_s}", "--grace-s", save_s]
        return [*options, "--host", os.environ["COSTOPT_HOST"], "--processes", str(self.gpus)]

    def variables(self) -> list[str]:
        """None: the pod has its environment."""
        return []


def boot_pod(make: Callable[[Config], BootPlatform], config: Config) -> None:
    """Install, and become the agent: as the container's first process it gets the kubelet's
    signals. What goes wrong is the container's last word, which the pod's status quotes."""
    cloud = make(config)
    brought = Path(config["root"], "site-{}.{}".format(*sys.version_info[:2]))
    if brought.is_dir():
        paths = [os.environ.get("PYTHONPATH"), str(brought)]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    command = install(cloud, config, cloud.node_id())
    os.execv(command[0], command)  # noqa: S606
