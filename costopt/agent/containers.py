"""Containers of podman or docker on this node: the images, the command lines, and their removal.

A container shares the host's network and its /dev/shm: a gang's members meet through the first,
and snapshots and data loaders use the second. It sees the folders that the command needs under
their own paths. Values of variables are never arguments, and the runtime stores nothing of what a
container prints.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import costopt
from costopt.agent.node_role import RoleError, call_aws, google_token
from costopt.domain.runtime import CONTAINER_RUNTIMES
from costopt.domain.secret import SecretSource

NODE_LABEL = "costopt.node"
RUN_LABEL = "costopt.run"
PACKAGE = "/opt/costopt"
"""Where a container sees this version of costopt, whatever its image holds."""
PASSED = ("AWS_", "CLOUDSDK_", "COSTOPT_", "CUDA_", "FI_", "GCE_", "GOOGLE_", "NCCL_", "NVIDIA_")
"""Variables of the agent that concern the node, by prefix, and go on to the container."""
DOCKER_HUB = ("docker.io", "https://index.docker.io/v1/")
"""Its names in the files of podman and of docker."""
CALL_TIMEOUT_S = 60.0
MAX_WORDS = 500


class ContainerError(Exception):
    """The runtime is missing or refused; the message says what it said."""


@dataclass(frozen=True, slots=True)
class ContainerRuntime:
    """A container command of this machine, as ``path``; ``node`` labels what is started."""

    path: str
    node: str

    @classmethod
    def find(cls, node: str) -> ContainerRuntime:
        """Return podman if it is installed, else docker. Raise ContainerError without both."""
        path = next(filter(None, map(shutil.which, CONTAINER_RUNTIMES)), None)
        if path is None:
            raise ContainerError("neither podman nor docker is installed on this node")
        return cls(path, node)

    @property
    def is_podman(self) -> bool:
        """Whether it takes podman's options."""
        return Path(self.path).name == "podman"

    def image_id(self, image: str) -> str | None:
        """Return the id of an image of this machine, None if it has none of that name."""
        code, said = self._call("image", "inspect", "--format", "{{.Id}}", image)
        return said.strip() if code == 0 else None

    def pull_command(self, image: str, login: Path | None) -> tuple[str, ...]:
        """Return the command that fetches an image, with credentials in the folder ``login``."""
        if login is None:
            return (self.path, "pull", image)
        if self.is_podman:
            return (self.path, "pull", "--authfile", str(login / "config.json"), image)
        return (self.path, "--config", str(login), "pull", image)

    def run_command(
        self,
        image: str,
        command: Iterable[str],
        variables: Iterable[str],
        *,
        workdir: str,
        mounts: Iterable[str],
        label: str,
    ) -> tuple[str, ...]:
        """Return the command that runs ``command`` in the foreground, and passes signals on.

        ``variables`` are names; their values come from the environment of the command. ``mounts``
        are folders of this machine that it may write to.
        """
        # --init: process 1 ignores signals for which it has no handler, and leaves zombies behind.
        # The network is the node's, for the gang; so is its shared memory, through which data
        # loaders pass batches (a container has 64 MB). The agent alone gets what is printed.
        return (
            *(self.path, "run", "--init", "--network=host", "--ipc=host", "--log-driver=none"),
            *("--pull=never", f"--user={self._user()}", f"--label={NODE_LABEL}={self.node}"),
            *(f"--label={RUN_LABEL}={label}", f"--workdir={workdir}", "--entrypoint="),
            *_devices(podman=self.is_podman),
            f"--volume={Path(costopt.__file__).parent}:{PACKAGE}/costopt:ro",
            f"--env=PYTHONPATH={PACKAGE}",
            *(f"--volume={folder}:{folder}" for folder in sorted({workdir, *mounts})),
            *(f"--env={name}" for name in sorted({*variables} - {"PYTHONPATH"})),
            image,
            *command,
        )

    def commit(self, label: str, image: str) -> None:
        """Store the ended container of ``label`` as an image. Raise ContainerError."""
        for container in self._containers(RUN_LABEL, label):
            code, said = self._call("commit", container, image, timeout_s=None)
            if code:
                raise ContainerError(f"{image} cannot be stored: {said.strip()[-MAX_WORDS:]}")

    def remove(self, label: str) -> None:
        """Kill and remove the containers of one command."""
        self._remove(RUN_LABEL, label)

    def remove_all(self) -> None:
        """Kill and remove what was started for this node, also by an agent that is gone."""
        self._remove(NODE_LABEL, self.node)

    def removal_script(self) -> str:
        """Return a shell command that does the same as ``remove_all``."""
        listed = f"{self.path} ps -aq --filter label={NODE_LABEL}={self.node}"
        return f'for c in $({listed}); do {self.path} rm -f "$c"; done'

    def _remove(self, label: str, value: str) -> None:
        for container in self._containers(label, value):
            self._call("rm", "-f", container)

    def _containers(self, label: str, value: str) -> Sequence[str]:
        return self._call("ps", "-aq", "--filter", f"label={label}={value}")[1].split()

    def _user(self) -> str:
        """The user of the files that both see; without root podman maps that user to root."""
        return "0:0" if self.is_podman else f"{os.getuid()}:{os.getgid()}"

    def _call(self, *arguments: str, timeout_s: float | None = CALL_TIMEOUT_S) -> tuple[int, str]:
        try:
            done = subprocess.run(  # noqa: S603
                (self.path, *arguments),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return 1, str(error)
        return done.returncode, done.stdout if done.returncode == 0 else done.stderr


@dataclass(frozen=True, slots=True)
class Container:
    """Where a trainer's processes run: an image of ``runtime`` with folders of this machine."""

    runtime: ContainerRuntime
    image: str
    mounts: tuple[str, ...] = ()
    label: str = field(default_factory=lambda: secrets.token_hex(8))

    def command(
        self, words: Sequence[str], variables: Mapping[str, str], workdir: str
    ) -> tuple[str, ...]:
        """Return the command that runs ``words`` in a new container, which is removed after it."""
        passed = {name for name in os.environ if name.startswith(PASSED)}
        command = self.runtime.run_command(
            self.image,
            words,
            passed.union(variables),
            workdir=workdir,
            mounts=self.mounts,
            label=self.label,
        )
        return (*command[:2], "--rm", *command[2:])

    def remove(self) -> None:
        """Kill and remove what still runs."""
        self.runtime.remove(self.label)


def _devices(*, podman: bool) -> tuple[str, ...]:
    """The GPUs, by NVIDIA's container toolkit, and the adapters of fast networks."""
    options: list[str] = []
    if Path("/dev/nvidia0").exists():
        # podman knows GPUs by their name in the Container Device Interface alone.
        options += ["--device=nvidia.com/gpu=all"] if podman else ["--gpus=all"]
    if Path("/dev/infiniband").exists():
        options += ["--device=/dev/infiniband", "--ulimit=memlock=-1"]
    return tuple(options)


def write_login(
    image: str, source: SecretSource | None, folder: Path, given: str | None = None
) -> Path | None:
    """Write the registry's credentials, ``given`` or by the node's role, into ``folder``.

    Return the folder, None where the registry is none of the node's cloud. ``given`` is
    USER:PASSWORD or a docker's config.json. Raise RoleError, ContainerError, OSError.
    """
    document = _given_login(image, given) if given else _role_login(image, source)
    if document is None:
        return None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(folder / "config.json", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(document)
    return folder


def _given_login(image: str, given: str) -> str:
    if given.lstrip().startswith("{"):
        try:
            if isinstance(json.loads(given)["auths"], dict):
                return given
        except (ValueError, LookupError, TypeError):
            pass
        raise ContainerError("image_login: the config.json holds no auths")
    user, colon, password = given.partition(":")
    if not (user and colon and password):
        raise ContainerError("image_login: expected USER:PASSWORD, or a config.json with auths")
    auth = {"auth": base64.b64encode(given.encode()).decode()}
    return json.dumps({"auths": dict.fromkeys(_registry_keys(image), auth)})


def _registry_keys(image: str) -> tuple[str, ...]:
    """Return the names under which podman and docker look for the registry's login."""
    host, slash, _ = image.partition("/")
    is_host = slash and ("." in host or ":" in host or host == "localhost")
    return DOCKER_HUB if not is_host or host in DOCKER_HUB else (host,)


def _role_login(image: str, source: SecretSource | None) -> str | None:
    registry = urlsplit(f"//{image}").netloc if "/" in image else ""
    login = _login(registry, source)
    return None if login is None else json.dumps({"auths": {registry: {"auth": login}}})


def _login(registry: str, source: SecretSource | None) -> str | None:
    """https://docs.aws.amazon.com/AmazonECR/latest/userguide/registry_auth.html,
    https://cloud.google.com/artifact-registry/docs/docker/authentication#token"""
    parts = registry.split(".")
    if source is SecretSource.AWS and len(parts) > 5 and parts[1:3] == ["dkr", "ecr"]:
        target = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
        data = call_aws("ecr", parts[3], target, {"registryIds": [parts[0]]})["authorizationData"]
        if not data:
            raise RoleError(f"{registry} gave no token")
        return str(data[0]["authorizationToken"])
    hosts = ("-docker.pkg.dev", "gcr.io")
    if source is SecretSource.GCP and registry.endswith(hosts):
        return base64.b64encode(f"oauth2accesstoken:{google_token()}".encode()).decode()
    return None
