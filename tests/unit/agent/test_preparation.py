"""A node's preparation: setup once, and the command lines of docker, which may not run here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from costopt.agent.launch_spec import LaunchMethod, process_specs
from costopt.agent.preparation import NodePreparation, private_folder
from costopt.agent.redaction import Redactor
from costopt.agent.secret_values import SecretReader
from costopt.agent.trainer import Trainer
from costopt.domain.secret import IMAGE_LOGIN
from costopt.protocol.messages import Gang, Rendezvous
from tests.support.containers import RecordingRuntime
from tests.support.live_run import wait_until

pytestmark = pytest.mark.process
VALUE = "correct-horse-battery"
IMAGE = "docker.io/acme/train:2"


class Node:
    """What an agent prepares, again and again as it restarts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workdir = folder / "node", folder / "work"
        self.folder.mkdir()
        self.workdir.mkdir()
        token = folder / "secrets" / "default" / "token"
        token.parent.mkdir(parents=True)
        token.write_text(VALUE)
        token.chmod(0o600)
        self.reader = SecretReader.parse(f"host:{folder / 'secrets'}")

    def prepare(self, **gang: object) -> NodePreparation:
        command = ("python", "train.py")
        wanted = Gang("j", 1, ("n1",), command, str(self.workdir), 0.0, **gang)  # type: ignore[arg-type]
        found = NodePreparation(wanted, str(self.workdir), self.folder, self.reader, Redactor())
        wait_until(lambda: found.place is not None or bool(found.failure), "preparation")
        return found


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_setup_runs_once_per_node_and_again_when_it_changes(node: Node) -> None:
    for setup, runs in (
        (("echo a >> runs",), 1),
        (("echo a >> runs",), 1),
        (("echo b >> runs",), 2),
    ):
        found = node.prepare(setup=setup)
        found.close()
        assert not found.failure
        assert len((node.workdir / "runs").read_text().split()) == runs


def test_setup_has_the_agent_s_python_and_the_secrets_which_its_log_hides(node: Node) -> None:
    rows = (("TOKEN", "host", "default/token", False),)
    setup = ('python -c "import sys; print(sys.executable)"', 'echo "token $TOKEN"; false')
    found = node.prepare(setup=setup, secrets=rows)
    found.close()
    assert found.failure.startswith("setup ended with 1: token ***")
    log = found.log_path.read_text()
    assert Path(sys.executable).parent.as_posix() in log
    assert VALUE not in log
    assert not private_folder(node.folder).exists()


def test_a_secret_that_is_missing_is_named(node: Node) -> None:
    found = node.prepare(secrets=(("TOKEN", "host", "default/other", False),))
    found.close()
    assert "secret TOKEN" in found.failure


def test_docker_s_command_lines_hold_names_and_no_values(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docker needs a daemon, which this machine may lack: a program in its place records."""
    docker = RecordingRuntime(tmp_path / "bin", "docker")
    monkeypatch.setenv("PATH", f"{docker.folder}:/usr/bin:/bin")
    monkeypatch.setattr("costopt.agent.containers.CONTAINER_RUNTIMES", ("docker",))
    monkeypatch.setenv("RECORDED", str(docker.record))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    rows = (("TOKEN", "host", "default/token", False), ("KEY", "host", "default/token", True))
    saves = str(tmp_path / "saves")
    found = node.prepare(image=IMAGE, secrets=rows, env=(("EPOCHS", "3"),), checkpoint_uri=saves)
    assert found.place is not None, found.failure
    assert ["pull", IMAGE] in docker.calls()
    specs = process_specs(
        found.gang,
        "n1",
        Rendezvous(1, "h", 1),
        launcher=LaunchMethod.DIRECT,
        processes=1,
        interpreter=found.place.interpreter(found.gang.command),
    )
    trainer = Trainer(
        specs,
        dict(found.place.variables),
        workdir=str(node.workdir),
        status_file=node.folder / "status.json",
        notice_file=node.folder / "notice.json",
        log_path=node.folder / "trainer.log",
        container=found.place.container(found.gang, node.folder, tmp_path / "data", None),
    )
    wait_until(lambda: trainer.exit_code() is not None, "end of the command")
    trainer.kill()
    found.close()
    (run,) = (call for call in docker.calls() if call[0] == "run")
    for word in ("--rm", "--init", "--network=host", "--ipc=host", "--log-driver=none"):
        assert word in run
    for name in ("TOKEN", "KEY", "EPOCHS", "RANK", "AWS_REGION"):
        assert f"--env={name}" in run
    for folder in (
        node.workdir,
        node.folder,
        saves,
        tmp_path / "data",
        private_folder(node.folder),
    ):
        assert f"--volume={folder}:{folder}" in run
    assert run[run.index("sha256:1234") + 1 :] == ["python", "-u", "train.py"]
    assert not any(VALUE in word for call in docker.calls() for word in call)


def test_an_image_is_pulled_with_its_login_which_the_command_does_not_get(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secrets" / "default" / "token").write_text(f"me:{VALUE}")
    docker = RecordingRuntime(tmp_path / "bin", "docker")
    monkeypatch.setenv("PATH", f"{docker.folder}:/usr/bin:/bin")
    monkeypatch.setattr("costopt.agent.containers.CONTAINER_RUNTIMES", ("docker",))
    monkeypatch.setenv("RECORDED", str(docker.record))
    found = node.prepare(
        image="ghcr.io/acme/train:1", secrets=((IMAGE_LOGIN, "host", "default/token", False),)
    )
    found.close()
    assert found.place is not None, found.failure
    assert not found.place.variables
    (pull,) = (call for call in docker.calls() if "pull" in call)
    assert pull[0] == "--config"
    assert not Path(pull[1]).exists()
    assert not any(VALUE in word for call in docker.calls() for word in call)


def test_a_node_without_a_runtime_says_so(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("costopt.agent.containers.CONTAINER_RUNTIMES", ())
    found = node.prepare(image=IMAGE)
    found.close()
    assert "podman" in found.failure
