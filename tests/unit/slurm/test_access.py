"""Slurm's commands over a real sshd, and what ``costopt doctor slurm`` finds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.domain.errors import BadRequestError, ProviderUnavailableError
from costopt.engine.loop import WallClock
from costopt.provider.base import CheckStatus
from costopt.provider.slurm_commands import CommandRunner
from costopt_slurm import SlurmProvider, connect
from costopt_slurm.queries import SlurmQueries
from tests.support.reserved_port import reserved_port
from tests.support.slurm.cluster import SlurmCluster, until

pytestmark = [pytest.mark.slurm, pytest.mark.process]
SSHD = "/usr/sbin/sshd"


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A host that `ssh` reaches by a key: this machine."""
    if not Path(SSHD).exists() or shutil.which("ssh") is None:
        pytest.skip("ssh and sshd are not installed (Debian: apt install openssh-server)")
    Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "user"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(key, check=True)
    shutil.copy(tmp_path / "user.pub", tmp_path / "authorized_keys")
    with reserved_port() as port:
        server = subprocess.Popen(
            [
                SSHD, "-D", "-f", "/dev/null", "-h", str(tmp_path / "host"),
                "-o", "ListenAddress=127.0.0.1", "-o", f"Port={port}", "-o", "StrictModes=no",
                "-o", f"AuthorizedKeysFile={tmp_path / 'authorized_keys'}", "-o", "PidFile=none",
                "-E", str(tmp_path / "sshd.log"),
            ],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        config = tmp_path / "config"
        config.write_text(
            f"Host login\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {tmp_path}/user\n"
            f"  UserKnownHostsFile {tmp_path}/known\n  StrictHostKeyChecking no\n"
        )
        programs = tmp_path / "bin"
        programs.mkdir()
        ssh = programs / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
        ssh.chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        until(lambda: subprocess.run([ssh, "login", "true"], capture_output=True).returncode == 0)
        yield "login"
        control = ["-o", "ControlPath=~/.ssh/costopt-%C", "-O", "exit", "login"]
        subprocess.run([ssh, *control], capture_output=True)
        server.kill()
        server.wait()


def test_commands_over_ssh(slurm: SlurmCluster, login: str, tmp_path: Path) -> None:
    """Quoting survives, one connection serves all commands, and errors keep their meaning."""
    runner = CommandRunner(login, str(slurm.conf))
    queries = SlurmQueries(runner)
    assert queries.settings().name == "test"
    comment = '{"a":"it\'s $HOME; \\"x\\""}'
    output = f"--output={tmp_path / 'job.out'}"
    job = queries.submit(
        "#!/bin/bash\nsleep 60\n",
        ("-p", "batch", "--job-name=costopt-x", f"--comment={comment}", output),
    )
    (found,) = queries.jobs()
    assert (found.job_id, found.comment) == (job, comment)
    log = tmp_path / "sshd.log"
    connections = log.read_text().count("Accepted publickey")
    for _ in range(5):
        queries.nodes()
    assert log.read_text().count("Accepted publickey") == connections > 0
    with pytest.raises(BadRequestError):
        queries.submit("#!/bin/bash\n", ("-p", "missing"))
    queries.cancel(str(job))
    assert queries.read_file(f"{slurm.folder}/missing") is None


def test_a_host_that_is_not_there(slurm: SlurmCluster, login: str) -> None:
    with pytest.raises(ProviderUnavailableError, match="ssh nowhere"):
        SlurmQueries(CommandRunner("nowhere.invalid", str(slurm.conf))).jobs()


def options(slurm: SlurmCluster, **more: object) -> dict[str, object]:
    return {
        "cluster": "campus",
        "node_types": {"h100": {"gpu": "H100", "gpus": 8, "vcpus": 8, "memory_gib": 31}},
        "partitions": {"spot": {"usd_per_gpu_hour": 0}, "high": {}, "batch": {"firm": True}},
        "folder": str(slurm.folder),
        "python": sys.executable,
        "slurm_conf": str(slurm.conf),
        **more,
    }


def verdicts(provider: SlurmProvider, store: str | None) -> dict[str, CheckStatus]:
    return {check.name: check.verdict for check in provider.checks("me", store)}


def test_doctor(slurm: SlurmCluster) -> None:
    ok, missing, broken = CheckStatus.OK, CheckStatus.MISSING, CheckStatus.BROKEN
    found = verdicts(connect(WallClock(), options(slurm)), "s3://bucket/costopt")
    assert found["Slurm"] is found["partition spot"] is found["partition spot h100"] is ok
    assert found["partition high"] is broken  # no time limit is known
    assert found["accounting"] is missing
    assert found["store"] is ok
    wrong = options(
        slurm,
        node_types={"big": {"gpu": "H100", "gpus": 4, "vcpus": 8, "memory_gib": 31}},
        partitions={"spot": {}, "nightly": {}},
        folder="/missing",
        python="/missing/python",
    )
    found = verdicts(connect(WallClock(), wrong), None)
    assert found["partition spot big"] is found["partition nightly"] is broken
    assert found["folder"] is found["Python"] is broken
    assert found["store"] is missing


def test_doctor_without_a_cluster(slurm: SlurmCluster) -> None:
    provider = connect(WallClock(), options(slurm, timeout_s=2.0))
    slurm.kill("slurmctld")
    assert verdicts(provider, None) == {"slurmctld": CheckStatus.BROKEN}


def test_unknown_prices_and_limits_are_said(slurm: SlurmCluster) -> None:
    provider = connect(WallClock(), options(slurm))
    offers = {offer.pool.zone: offer for offer in provider.offers(datetime.now(UTC))}
    assert (offers["spot"].is_free, offers["spot"].unknown_because) == (True, "")
    assert offers["batch"].price_usd_per_hour is None
    assert "usd_per_gpu_hour" in offers["batch"].unknown_because
    assert "max_run_h" in offers["high"].unknown_because


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"cluster": "A b"}, "cluster"),
        ({"partitions": {}}, "partitions"),
        ({"partitions": {"spot": {"node_types": ["a100"]}}}, "partitions"),
        ({"partitions": {"spot": {"usd_per_gpu_hour": -1}}}, "partitions"),
        ({"folder": "relative"}, "folder"),
        ({"host": "-oProxyCommand=x"}, "host"),
        ({"regions": ["x"]}, "regions"),
    ],
)
def test_wrong_options(tmp_path: Path, changes: dict[str, object], named: str) -> None:
    base = {
        "cluster": "campus",
        "node_types": {"h100": {"gpu": "H100", "gpus": 8, "vcpus": 8, "memory_gib": 31}},
        "partitions": {"spot": {}},
        "folder": str(tmp_path),
    }
    with pytest.raises(BadRequestError, match=named):
        connect(WallClock(), base | changes)
