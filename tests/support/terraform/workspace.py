"""Terraform in a copy of the project's folder, so that nothing is left in the tree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "terraform"
EXAMPLE_JOB = ROOT / "examples" / "finetune"
PROVIDERS = "registry.terraform.io/hashicorp"
PLUGINS = (Path("/opt/tf-plugins"), Path("/usr/share/terraform/plugins"))
PLUGINS_VARIABLE = "COSTOPT_TF_PLUGINS"
OVERRIDE = """
provider "aws" {
  s3_use_path_style           = true
  max_retries                 = 2
  skip_metadata_api_check     = true
  skip_region_validation      = true
}
"""
"""For a cloud at an address that has no names below it, and that does not get well by waiting."""


def missing(provider: str = "aws") -> str | None:
    """Why Terraform with this provider cannot be run here; None where it can."""
    unchecked = f"the {provider} modules were not validated, tested or applied"
    if shutil.which("terraform") is None:
        return f"terraform is not installed: {unchecked}"
    if plugins(provider) is None:
        places = ", ".join(map(str, PLUGINS))
        return f"no {PROVIDERS}/{provider} in {places} or {PLUGINS_VARIABLE}: {unchecked}"
    return None


def plugins(provider: str) -> Path | None:
    """A folder that holds the provider as ``terraform init -plugin-dir`` wants it."""
    named = os.environ.get(PLUGINS_VARIABLE)
    places = (Path(named),) if named else PLUGINS
    return next((place for place in places if (place / PROVIDERS / provider).is_dir()), None)


@dataclass(frozen=True)
class Workspace:
    """The copy, and the environment that Terraform runs in."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def copy(cls, folder: Path, **environment: str) -> Workspace:
        """A fresh copy in ``folder``."""
        ignored = shutil.ignore_patterns(".terraform*", "*.tfstate*", "output", "__pycache__")
        shutil.copytree(SOURCE, folder / "terraform", ignore=ignored)
        shutil.copytree(EXAMPLE_JOB, folder / "examples" / "finetune", ignore=ignored)
        return cls(folder / "terraform", environment)

    def init(self, place: str, provider: str = "aws") -> None:
        """Link the provider for the configuration at ``place``."""
        self.run(place, "init", "-backend=false", f"-plugin-dir={plugins(provider)}")

    def override(self, place: str) -> None:
        """Let the provider speak to a cloud on the loopback."""
        (self.folder / place / "provider_override.tf").write_text(OVERRIDE)

    def run(self, place: str, *arguments: str) -> str:
        """What Terraform says. Raises AssertionError with its errors."""
        done = self.attempt(place, *arguments)
        assert done.returncode == 0, f"terraform {arguments[0]}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def attempt(self, place: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Terraform, which may fail."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "TF_", "COSTOPT_"))
        }
        given = {
            "TF_CLI_CONFIG_FILE": os.devnull,
            "CHECKPOINT_DISABLE": "1",
            "TF_IN_AUTOMATION": "1",
        }
        return subprocess.run(
            ["terraform", arguments[0], "-no-color", *arguments[1:]],
            cwd=self.folder / place,
            env={**kept, **given, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    def resources(self, place: str) -> Any:
        """What the state holds, without a provider to interpret it."""
        return json.loads((self.folder / place / "terraform.tfstate").read_text())["resources"]

    def outputs(self, place: str) -> Any:
        """By name, as Python values."""
        reported = json.loads(self.run(place, "output", "-json"))
        return {name: each["value"] for name, each in reported.items()}
