"""What the API can get at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from costopt.daemon.auth import Principal
from costopt.daemon.reader import TenantReader
from costopt.daemon.service import DaemonService
from costopt.domain.errors import StoreError
from costopt.domain.ports import Clock
from costopt.domain.token import TokenStore


@dataclass(frozen=True, slots=True)
class ApiContext:
    """``folders`` are those that jobs from elsewhere may use on this machine; relative paths of
    theirs count from the first. ``clock`` is the wall's."""

    service: DaemonService
    tokens: TokenStore
    clock: Clock
    folders: tuple[Path, ...]

    def reader(self, caller: Principal) -> TenantReader:
        """What the caller may see."""
        return TenantReader(self.service, caller.tenant)

    def folders_for(self, caller: Principal) -> tuple[Path, ...]:
        """Those of ``folders`` that the caller's jobs may use; a tenant's token has one below each.

        Raises StoreError where these are missing and cannot be made.
        """
        if caller.tenant is None:
            return self.folders
        folders = tuple(folder / caller.tenant for folder in self.folders)
        for folder in folders:
            try:
                folder.mkdir(exist_ok=True)
            except OSError as error:
                raise StoreError(f"cannot make {folder}: {error.strerror}") from error
        return folders
