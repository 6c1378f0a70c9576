"""A real slurmrestd of a test's cluster: on a socket for its own user, or over HTTP with tokens."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from costopt_slurm.rest_client import RestClient
from tests.support.reserved_port import reserved_port
from tests.support.slurm.cluster import PLUGINS, SlurmCluster, until

UNPRIVILEGED = pwd.getpwnam("nobody")
"""slurmrestd refuses to run as root."""


def skip_without_rest() -> None:
    """Skip the test where slurmrestd or Slurm's tokens are not installed."""
    if shutil.which("slurmrestd") is None or not Path(PLUGINS, "auth_jwt.so").exists():
        pytest.skip(
            "nothing of Slurm's REST API is tested "
            "(Debian: apt install slurmrestd slurm-wlm-jwt-plugin)"
        )


def token_settings(folder: Path) -> tuple[str, ...]:
    """Return the lines of slurm.conf for tokens, with a key in this folder."""
    key = folder / "jwt.key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    return ("AuthAltTypes=auth/jwt", f"AuthAltParameters=jwt_key={key}")


@contextmanager
def rest_on_socket(slurm: SlurmCluster) -> Iterator[RestClient]:
    """A client of the user nobody, whose requests need no token."""
    folder = slurm.folder / "rest"
    folder.mkdir()
    os.chown(folder, UNPRIVILEGED.pw_uid, UNPRIVILEGED.pw_gid)
    path = folder / "socket"
    with _slurmrestd(slurm, "rest_auth/local", f"unix:{path}"):
        until(lambda: _answers(socket.AF_UNIX, str(path)))
        yield RestClient(f"unix:{path}", UNPRIVILEGED.pw_name)


@contextmanager
def rest_over_http(slurm: SlurmCluster) -> Iterator[str]:
    """The address of a server for all users with a token; slurm.conf has ``token_settings``."""
    with (
        reserved_port() as port,
        _slurmrestd(slurm, "rest_auth/jwt", f"127.0.0.1:{port}", SLURM_JWT="daemon"),
    ):
        until(lambda: _answers(socket.AF_INET, ("127.0.0.1", port)))
        yield f"http://127.0.0.1:{port}"


def write_token(slurm: SlurmCluster, user: str, path: Path) -> Path:
    """Write a user's token to a file, as scontrol prints it."""
    path.write_text(slurm.run("scontrol", "token", f"username={user}", "lifespan=3600"))
    return path


def _answers(family: int, address: str | tuple[str, int]) -> bool:
    """Whether a connection is accepted: the socket is there before anyone listens."""
    with suppress(OSError), socket.socket(family) as link:
        link.settimeout(1.0)
        link.connect(address)
        return True
    return False


@contextmanager
def _slurmrestd(slurm: SlurmCluster, auth: str, listen: str, **more: str) -> Iterator[None]:
    pattern = "openapi_*v0_*.so" if slurm.accounts else "openapi_v0_*.so"
    apis = [path.stem.removeprefix("openapi_") for path in Path(PLUGINS).glob(pattern)]
    known = ",".join(f"openapi/{api.replace('_', '.')}" for api in apis)
    with (slurm.folder / "log" / "slurmrestd.out").open("ab") as log:
        process = subprocess.Popen(
            [
                *("setpriv", f"--reuid={UNPRIVILEGED.pw_uid}", f"--regid={UNPRIVILEGED.pw_gid}"),
                *("--clear-groups", "slurmrestd", "-a", auth, "-s", known, listen),
            ],
            env={**os.environ, **slurm.environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()
