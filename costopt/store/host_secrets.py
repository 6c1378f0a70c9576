"""Secrets in files of the controller's host, for nodes that share it: FOLDER/TENANT/NAME."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from costopt.domain.errors import SpecError
from costopt.domain.secret import MAX_BYTES

FOLDER_VARIABLE = "COSTOPT_SECRETS_DIR"


def host_secrets_folder() -> Path:
    """Return the folder of secrets on this host, one folder for each tenant in it."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(os.environ.get(FOLDER_VARIABLE) or Path(base, "costopt", "secrets")).expanduser()


def read_host_secret(folder: Path, tenant: str, name: str) -> bytes:
    """Return the bytes of FOLDER/TENANT/NAME. Raise SpecError if it cannot serve as a secret."""
    path = folder / tenant / name
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            value = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SpecError(
            f"secret {name!r}: {path} cannot be read: {error.strerror}",
            hint=f"write the value to this file, with mode 0600; {FOLDER_VARIABLE} names the "
            "folder above it",
            code="missing_secret",
        ) from None
    if mode & 0o077:
        raise SpecError(
            f"secret {name!r}: other users may read {path}",
            hint=f"chmod 600 {path}",
            code="readable_secret",
        )
    return value
