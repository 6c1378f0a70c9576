"""The modules as text: formatted, described, valid, and at one with costopt."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import hcl2
import pytest

from costopt_gcp.doctor import NEEDED, USEFUL
from costopt_gcp.roles import ACCOUNT, BUCKET, PROJECT, STORE
from tests.support.terraform.readme import MODULES, PAGES, blocks, generated
from tests.support.terraform.workspace import SOURCE, Workspace, missing

EXAMPLES = ("aws-minimal", "aws-complete", "gcp-minimal", "gcp-complete")
needs_provider = pytest.mark.skipif(missing() is not None, reason=str(missing()))
needs_terraform = pytest.mark.skipif(
    shutil.which("terraform") is None, reason="terraform is not installed: nothing was rendered"
)
CHECKOV = os.environ.get("COSTOPT_CHECKOV") or shutil.which("checkov")
needs_checkov = pytest.mark.skipif(
    CHECKOV is None,
    reason="checkov is not on the path: neither module was checked with it; `make checkov` does",
)
group = pytest.mark.worker_group("terraform-modules")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace.copy(tmp_path_factory.mktemp("modules") / "copy", AWS_REGION="us-east-1")


@needs_terraform
@group
def test_everything_is_formatted(workspace: Workspace) -> None:
    assert workspace.run(".", "fmt", "-check", "-recursive") == ""


@pytest.mark.skipif(missing("google") is not None, reason=str(missing("google")))
@group
@pytest.mark.parametrize("example", ["gcp-minimal", "gcp-complete"])
def test_examples_are_valid_that_are_not_applied(workspace: Workspace, example: str) -> None:
    workspace.init(f"examples/{example}", "google")
    assert "Success!" in workspace.run(f"examples/{example}", "validate")


@needs_terraform
@pytest.mark.parametrize("module", ["aws", "gcp"])
def test_variables_accept_and_refuse_what_they_should(module: str, tmp_path: Path) -> None:
    """Without the module's resources, and so without its provider."""
    alone = Workspace(tmp_path)
    for name in ("variables.tf", "tests/variables.tftest.hcl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(SOURCE / "modules" / module / name, tmp_path / name)
    alone.run(".", "init")
    assert "0 failed" in alone.run(".", "test")


@needs_provider
@group
def test_what_follows_from_the_variables(workspace: Workspace) -> None:
    """With a mocked provider: terraform/modules/aws/tests."""
    workspace.init("modules/aws")
    said = workspace.run("modules/aws", "test", "-filter=tests/resources.tftest.hcl")
    assert "0 failed" in said


@needs_checkov
def test_checkov_finds_nothing_but_what_is_justified_in_place() -> None:
    flags = ("--framework", "terraform", "--skip-download", "--compact", "--quiet")
    done = subprocess.run([str(CHECKOV), "-d", str(SOURCE), *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed checks: " in done.stdout


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.tf")), ids=lambda p: str(p.parent.name))
def test_files_are_read_by_another_parser(path: Path) -> None:
    with path.open(encoding="utf-8") as file:
        assert hcl2.load(file)


@pytest.mark.parametrize("place", [*MODULES, *(f"examples/{each}" for each in EXAMPLES)])
def test_variables_are_typed_and_described_and_so_are_outputs(place: str) -> None:
    folder = SOURCE / place
    for name, body in blocks(folder, "variable").items():
        assert {"type", "description"} <= body.keys(), name
    for name, body in blocks(folder, "output").items():
        assert "description" in body, name


@pytest.mark.parametrize("place", [*MODULES, *(f"examples/{each}" for each in EXAMPLES)])
def test_nothing_is_asked_for_that_is_not_used(place: str) -> None:
    folder = SOURCE / place
    texts = {path.name: path.read_text("utf-8") for path in folder.glob("*.tf")}
    elsewhere = "".join(text for name, text in texts.items() if name != "variables.tf")
    for name in blocks(folder, "variable"):
        assert re.search(rf"\bvar\.{name}\b", elsewhere), name
    for name in _locals(*sorted(folder.glob("*.tf"))):
        assert re.search(rf"\blocal\.{name}\b", elsewhere), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.parent.name))
def test_readmes_tell_every_input_output_and_price(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert generated(page) in text, "run python -m tests.support.terraform.readme"


@pytest.mark.parametrize("script", sorted(SOURCE.rglob("*.sh")), ids=lambda p: p.parts[-3])
def test_scripts_parse(script: Path) -> None:
    assert subprocess.run(["sh", "-n", script], capture_output=True).returncode == 0


def test_gcp_roles_have_the_permissions_that_the_adapter_names() -> None:
    said = _locals(SOURCE / "modules/gcp/roles.tf")
    store, find = _list(said["store_permissions"]), _list(said["find_permissions"])
    assert store == list(STORE)
    assert set(_list(said["read_permissions"])) < set(store)
    assert sorted([*store, *find]) == sorted(BUCKET)
    assert _list(said["daemon_permissions"]) == list(PROJECT)
    assert _list(said["act_as_permissions"]) == list(ACCOUNT)


def test_gcp_enables_the_apis_that_the_adapter_asks() -> None:
    enabled = (SOURCE / "modules/gcp/main.tf").read_text(encoding="utf-8")
    assert all(f'"{name}"' in enabled for name in (*NEEDED, *USEFUL))


@needs_terraform
@group
@pytest.mark.parametrize("files", ["", "fs-1"])
def test_aws_instances_start_what_they_should(workspace: Workspace, files: str) -> None:
    said = _rendered(
        workspace,
        "modules/aws/files/instance.sh.tftpl",
        "commands = { daemon = \"'sh' '-c' 'x'\" }, environment = { A = \"1\" }, "
        'image = "r/c:1", '
        'access_point_id = "ap", log_group = "/costopt", region = "us-east-1", user_id = 10001, '
        'run_dir = "/run/costopt", state_dir = "/var/lib/costopt", '
        f'secret_arn = "{"" if files else "arn"}", file_system_id = "{files}"',
    )
    assert subprocess.run(["bash", "-n"], input=said, text=True).returncode == 0
    assert ("amazon-efs-utils" in said) is bool(files)
    assert ("PGPASSWORD" in said) is not bool(files)


def _rendered(workspace: Workspace, template: str, variables: str) -> str:
    path = workspace.folder / template
    empty = workspace.folder / "empty"
    empty.mkdir(exist_ok=True)
    done = subprocess.run(
        ["terraform", "console"],
        input=f'base64encode(templatefile("{path}", {{ {variables} }}))\n',
        cwd=empty,
        env={**os.environ, "TF_CLI_CONFIG_FILE": os.devnull, "CHECKPOINT_DISABLE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    import base64

    return base64.b64decode(done.stdout.strip().strip('"')).decode()


def _locals(*paths: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in paths:
        with path.open(encoding="utf-8") as file:
            for block in hcl2.load(file).get("locals", ()):
                found |= {name: value for name, value in block.items() if not name.startswith("__")}
    return found


def _list(values: list[str]) -> list[str]:
    return [value.strip('"') for value in values]
