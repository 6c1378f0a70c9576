"""What code, data and policy a checkpoint comes from."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from costopt.checkpoint.manifest import Origin

CODE_REVISION = "COSTOPT_CODE_REVISION"
DATA_REVISION = "COSTOPT_DATA_REVISION"
POLICY = "COSTOPT_POLICY"
GIT = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
GIT_TIMEOUT_S = 10.0


def detect_origin(torch_version: str, variables: Mapping[str, str] = os.environ) -> Origin:
    """From the environment; the code's revision otherwise from Git in the working directory."""
    return Origin(
        torch_version=torch_version,
        code_revision=variables.get(CODE_REVISION) or git_revision(),
        data_revision=variables.get(DATA_REVISION) or None,
        policy=variables.get(POLICY) or None,
    )


def git_revision(folder: Path | None = None) -> str | None:
    """The commit of ``folder``, by default the working directory, with "-dirty" where files differ.

    None outside of a repository.
    """
    try:
        found = subprocess.run(  # noqa: S603
            GIT, cwd=folder, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
