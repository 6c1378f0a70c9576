"""The fixture ``ceph``: Ceph's S3 gateway over a monitor and a daemon that stores in memory.

Programs are found on the PATH, their plugins in the ``lib`` beside them, so that an unpacked
distribution serves as well.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.support.reserved_port import reserved_port

PROGRAMS = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw",
            "radosgw-admin")  # fmt: skip
KEYS = {
    "mon.": ("mon", "allow *"),
    "client.admin": ("mon", "allow *", "osd", "allow *"),
    "osd.0": ("mon", "allow profile osd", "osd", "allow *"),
    "client.rgw": ("mon", "allow rw", "osd", "allow rwx"),
}
CONFIGURATION = """\
[global]
fsid = {fsid}
mon host = {monitor}
mon initial members = a
public addr = 127.0.0.1
cluster addr = 127.0.0.1
keyring = {folder}/keyring
run dir = {folder}
admin socket = {folder}/$name.asok
log file = {folder}/$name.log
plugin dir = {plugins}/ceph
erasure code dir = {plugins}/ceph/erasure-code
compressor dir = {plugins}/ceph/compressor
osd class dir = {plugins}/rados-classes
osd objectstore = memstore
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
[mon.a]
mon data = {folder}/mon
[osd.0]
osd data = {folder}/osd
[client.rgw]
rgw data = {folder}
rgw frontends = beast endpoint=127.0.0.1:{port}
"""
KEY, SECRET = "test", "testtest"
START_TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a gateway with the bucket ``training``."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(
            f"{', '.join(missing)} not installed: Ceph's gateway is not tested "
            "(Debian: apt install radosgw ceph-mon ceph-osd ceph-common)"
        )
    with served_gateway(tmp_path_factory.mktemp("ceph")) as url:
        yield url


@contextmanager
def served_gateway(folder: Path) -> Iterator[str]:
    """Start the daemons; they end with the block."""
    with ExitStack() as held:
        v2, v1, port = (held.enter_context(reserved_port()) for _ in range(3))
        monitor = f"[v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]"
        fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
        library = Path(shutil.which("radosgw") or "").resolve().parents[1] / "lib"
        plugins = library / str(sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu")
        configuration, keyring = folder / "ceph.conf", folder / "keyring"
        configuration.write_text(
            CONFIGURATION.format(
                fsid=fsid, monitor=monitor, folder=folder, plugins=plugins, port=port
            )
        )
        for place in ("mon", "osd"):
            (folder / place).mkdir()
        for name, capabilities in KEYS.items():
            pairs = zip(capabilities[::2], capabilities[1::2], strict=True)
            caps = [word for pair in pairs for word in ("--cap", *pair)]
            create = () if keyring.exists() else ("--create-keyring",)
            _call("ceph-authtool", *create, keyring, "--gen-key", "-n", name, *caps)
        given = ("-c", configuration)
        _call("monmaptool", "--create", "--fsid", fsid, "--addv", "a", monitor, folder / "map")
        _call("ceph-mon", *given, "-i", "a", "--mkfs", "--monmap", folder / "map",
              "--keyring", keyring)  # fmt: skip
        held.enter_context(_running("ceph-mon", *given, "-i", "a"))
        _call("ceph", *given, "osd", "new", osd)
        _call("ceph-osd", *given, "-i", "0", "--mkfs", "--osd-uuid", osd)
        held.enter_context(_running("ceph-osd", *given, "-i", "0"))
        held.enter_context(_running("radosgw", *given, "-n", "client.rgw"))
        _call("radosgw-admin", *given, "user", "create", "--uid=test", "--display-name=test",
              f"--access-key={KEY}", f"--secret={SECRET}")  # fmt: skip
        url = f"http://127.0.0.1:{port}"
        _create_bucket(url)
        yield url


def _call(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=START_TIMEOUT_S)


@contextmanager
def _running(*command: str | Path) -> Iterator[None]:
    """A daemon in the foreground."""
    daemon = subprocess.Popen(
        (*command, "-f"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        daemon.kill()
        daemon.wait()


def _create_bucket(url: str) -> None:
    """Wait for the gateway."""
    client = boto3.session.Session().client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            client.create_bucket(Bucket="training")
        except (BotoCoreError, ClientError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            client.close()
            return
