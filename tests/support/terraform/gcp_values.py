"""What the Google Cloud module's expressions come to, without its provider.

Terraform evaluates the module's variables, locals and outputs. What they tell of resources, which
only the provider could make, stands in ``RESOURCES``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.support.terraform.workspace import SOURCE

MODULE = SOURCE / "modules" / "gcp"
LOCALS = re.compile(r"^locals \{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
RESOURCE = re.compile(r"\bgoogle_(\w+\.\w+)")
RESOURCES = """
locals {
  at = "my-project.iam.gserviceaccount.com"
  resources = {
    "storage_bucket.store"            = { name = "runs" }
    "service_account.daemon"          = { email = "daemon@${local.at}" }
    "service_account.node"            = { email = "node@${local.at}" }
    "service_account.job" = {
      for job in keys(var.jobs) : job => { email = "${job}@${local.at}" }
    }
    "compute_network.this"            = { id = "networks/costopt" }
    "compute_subnetwork.nodes"        = { for region in local.regions : region => { id = region } }
    "cloud_run_v2_service.daemon"     = local.vm ? [] : [{ uri = "https://daemon.run.app" }]
    "sql_database_instance.state"     = local.postgres ? [{ private_ip_address = "10.0.0.3" }] : []
    "secret_manager_secret.password"  = [{ id = "projects/my-project/secrets/password" }]
    "pubsub_subscription.preemptions" = { id = "subscriptions/preemptions" }
  }
}

output "evaluated" {
  value = {
    job_documents = local.job_documents
    job_files     = local.job_files
    machine_start = local.machine_start
    node_reads    = local.node_reads
    node_writes   = local.node_writes

    daemon_condition = local.daemon_condition
  }
}
"""
NEEDED = {
    "project": "my-project",
    "region": "us-central1",
    "image": "us-central1-docker.pkg.dev/my-project/costopt/costopt:0.1.0",
}


def evaluated(folder: Path, **variables: object) -> dict[str, Any]:
    """The module's outputs that are not null, and ``evaluated``.

    Terraform runs in ``folder``, which is made.
    """
    folder.mkdir()
    shutil.copy(MODULE / "variables.tf", folder)
    shutil.copytree(MODULE / "files", folder / "files")
    blocks = [
        block
        for path in sorted(MODULE.glob("*.tf"))
        for block in LOCALS.findall(path.read_text("utf-8"))
    ]
    outputs = (MODULE / "outputs.tf").read_text("utf-8")
    text = RESOURCE.sub(r'local.resources["\1"]', "".join([*blocks, outputs]))
    (folder / "main.tf").write_text(text + RESOURCES)
    (folder / "given.auto.tfvars.json").write_text(json.dumps(NEEDED | variables))
    terraform(folder, "init")
    terraform(folder, "apply", "-auto-approve")
    reported = json.loads(terraform(folder, "output", "-json"))
    return {name: each["value"] for name, each in reported.items()}


def terraform(folder: Path, *arguments: str) -> str:
    """What it prints. Raises AssertionError with its errors."""
    quiet = {"TF_CLI_CONFIG_FILE": os.devnull, "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"}
    done = subprocess.run(
        ["terraform", arguments[0], "-no-color", *arguments[1:]],
        cwd=folder,
        env={**os.environ, **quiet},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
