"""The Google Cloud module's variables and expressions, evaluated by Terraform, and used."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from costopt.cli.daemon import run
from costopt.cli.jobs import submit
from costopt.controller.deployed_jobs import deployed_jobs
from costopt.spec import load_account
from costopt.store import open_store
from costopt_gcp.options import GcpOptions
from costopt_gcp.roles import daemon_condition
from tests.support.terraform.gcp_values import evaluated

pytestmark = [
    pytest.mark.skipif(
        shutil.which("terraform") is None,
        reason="terraform is not installed: nothing of the Google Cloud module was evaluated",
    ),
    pytest.mark.worker_group("terraform-modules"),
]
JOBS = ("finetune", "other")
FILES = {"train.py": "print()", "data/.a b": "x", "data/same": "x"}
DEPLOYED = "/var/lib/costopt/deployed"
STORE = "projects/_/buckets/runs/objects/costopt"


@pytest.fixture(scope="module")
def on_vm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """With jobs and a budget, on a machine."""
    folder = tmp_path_factory.mktemp("vm")
    for path, text in FILES.items():
        (folder / "job" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "job" / path).write_text(text)
    jobs = {name: {"document": f"name: {name}", "folder": None} for name in JOBS}
    jobs["finetune"]["folder"] = str(folder / "job")
    guarded = {"mode": "enforce", "monthly_budget_usd": 500, "other_regions": ["europe-west4"]}
    return evaluated(folder / "module", jobs=jobs, **guarded)


@pytest.fixture(scope="module")
def with_postgres(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """On a machine, with a database."""
    password = {"database": "postgres", "database_password": "sixteen characters"}
    return evaluated(tmp_path_factory.mktemp("postgres") / "module", **password)


def test_the_account_file_is_read_by_costopt(on_vm: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "account.yaml"
    path.write_text(on_vm["account_document"])
    account = load_account(str(path))
    options = GcpOptions.parse(account.providers["gcp"])
    assert (account.owner, account.store) == ("costopt", "gs://runs/costopt")
    assert account.guards.max_usd_per_month == 500
    assert options.regions == ("us-central1", "europe-west4")
    assert set(options.subnetworks) == {"us-central1", "europe-west4"}
    assert options.service_account == on_vm["node_service_account"]
    assert options.job_service_accounts == on_vm["job_service_accounts"]
    assert set(options.job_service_accounts) == set(JOBS)


def test_jobs_are_fetched_as_they_were_given(on_vm: dict[str, Any], tmp_path: Path) -> None:
    reported, store = on_vm["evaluated"], open_store(str(tmp_path / "store"))
    for name, document in reported["job_documents"].items():
        store.put(f"{name}/job.json", document.encode())
    for key, (path, *_) in reported["job_files"].items():
        store.put_file(key, Path(path))
    finetune, other = deployed_jobs(store)
    assert (finetune.name, finetune.policy, finetune.priority) == ("finetune", "balanced", 0)
    assert (other.document, other.files) == ("name: other", {})
    finetune.fetch(store, tmp_path / "finetune")
    assert {path: (tmp_path / "finetune" / path).read_text() for path in FILES} == FILES


def test_the_command_hands_jobs_in_and_becomes_the_daemon(
    on_vm: dict[str, Any], tmp_path: Path
) -> None:
    """With a costopt that only tells how it was called."""
    program = tmp_path / "costopt"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called-$1\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", **on_vm["environment"]}
    environment["COSTOPT_ACCOUNT"] = str(tmp_path / "account.yaml")
    done = subprocess.run(on_vm["command"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "account.yaml").read_text() == on_vm["account_document"]
    assert (tmp_path / "account.yaml").stat().st_mode & 0o777 == 0o600
    reported = understood(run, tmp_path / "called-daemon")
    assert (reported["mode"], reported["tick_s"]) == ("enforce", 60)
    assert reported["listen"] == "unix:/run/costopt/daemon.sock"
    reported = understood(submit, tmp_path / "called-submit")
    assert (reported["store"], reported["into"]) == ("gs://runs/deployed", Path(DEPLOYED))
    assert reported["patience"] == 600


@pytest.mark.parametrize(
    ("job", "name", "reads", "writes"),
    [
        ("finetune", "checkpoints/finetune/x", True, True),
        ("finetune", "jobs/finetune/x", True, True),
        ("finetune", "payloads/finetune/x", True, False),
        ("finetune", "checkpoints/other/x", False, False),
        ("finetune", "checkpoints/finetune-2/x", False, False),
        ("finetune", "payloads/other/x", False, False),
        ("", "jobs/later/x", True, True),
        ("", "payloads/later/x", True, False),
        ("", "../deployed/other/job.json", False, False),
    ],
)
def test_nodes_read_and_write_what_they_must_and_no_more(
    on_vm: dict[str, Any], job: str, name: str, reads: bool, writes: bool
) -> None:
    place = f"{STORE}/{name}".replace("costopt/../", "")
    reported = on_vm["evaluated"]
    assert holds(reported["node_reads"][job], place) is reads
    assert holds(reported["node_writes"][job], place) is writes


@pytest.mark.parametrize(
    ("kind", "name", "may"),
    [
        ("Instance", "zones/us-central1-a/instances/costopt-0a1b-0", True),
        ("Instance", "zones/us-central1-a/instances/web-1", False),
        ("Instance", "zones/us-central1-a/instances/a-costopt-1", False),
        ("Disk", "zones/us-central1-a/disks/costopt-0a1b-0", True),
        ("Disk", "zones/us-central1-a/disks/database", False),
        ("Network", "global/networks/default", True),
    ],
)
def test_of_machines_the_daemon_may_touch_those_of_ours(
    on_vm: dict[str, Any], kind: str, name: str, may: bool
) -> None:
    condition = on_vm["evaluated"]["daemon_condition"]
    assert condition == daemon_condition()["expression"]
    place, type_ = f"projects/my-project/{name}", f"compute.googleapis.com/{kind}"
    assert holds(condition, place, type_) is may


def test_the_machine_starts_the_daemon(on_vm: dict[str, Any]) -> None:
    files = written(on_vm["evaluated"]["machine_start"])
    said = dict(line.split("=", 1) for line in files["/etc/costopt/environment"].splitlines())
    assert said == on_vm["environment"]
    prepare = files["/etc/costopt/prepare"]
    assert "PGPASSWORD" not in prepare
    assert subprocess.run(["bash", "-n"], input=prepare, text=True).returncode == 0
    unit = files["/etc/systemd/system/costopt.service"]
    assert "\nExecStop=" in unit
    assert '"printf %%s' not in unit
    assert r"printf %%s \"$$COSTOPT_ACCOUNT_DOCUMENT\"" in unit


def test_the_password_is_fetched_and_in_no_address(with_postgres: dict[str, Any]) -> None:
    files = written(with_postgres["evaluated"]["machine_start"])
    prepare = files["/etc/costopt/prepare"]
    assert "PGPASSWORD" in prepare
    assert subprocess.run(["bash", "-n"], input=prepare, text=True).returncode == 0
    assert with_postgres["command"][-2:] == [
        "--database",
        "postgresql://costopt@10.0.0.3:5432/costopt?sslmode=require",
    ]
    assert "sixteen" not in str(with_postgres)
    assert "submit --from" not in str(with_postgres["command"])


def test_on_cloud_run_the_daemon_answers_in_the_network(
    on_vm: dict[str, Any], tmp_path: Path
) -> None:
    password = {"database": "postgres", "database_password": "sixteen characters"}
    reported = evaluated(tmp_path / "module", run_on="cloud_run", **password)
    assert reported["command"][reported["command"].index("--listen") + 1] == "0.0.0.0:8080"
    assert reported["command"][reported["command"].index("--allowed-host") + 1] == "*.run.app"
    assert reported["url"] == "https://daemon.run.app"
    assert "shell" not in reported
    assert reported["environment"]["COSTOPT_SERVER"] == "unix:/var/lib/costopt/daemon.sock"
    assert "costopt-daemon" in on_vm["shell"]
    assert "url" not in on_vm


def understood(command: click.Command, called: Path) -> dict[str, Any]:
    """What a command of ours makes of the words that it was called with."""
    _, *words = called.read_text().split()
    return command.make_context(command.name, words).params


def holds(condition: str, name: str, resource_type: str = "storage.googleapis.com/Object") -> bool:
    """Whether an IAM condition of the module's kind holds for a resource of this name."""

    class Name(str):
        __slots__ = ()
        startsWith = str.startswith  # noqa: N815 - CEL's name

        def extract(self, template: str) -> Name:
            """What follows "/before/" in a template "/before/{name}"."""
            return Name(self.partition(template.removesuffix("{name}"))[2])

    python = condition.replace(" || ", " or ").replace(" && ", " and ")
    python = python.replace("!resource.", "not resource.")
    resource = type("Resource", (), {"name": Name(name), "type": resource_type})
    return bool(eval(python, {"resource": resource}))


def written(machine_start: str) -> dict[str, str]:
    """The files that cloud-init writes, by path."""
    return {each["path"]: each["content"] for each in yaml.safe_load(machine_start)["write_files"]}
