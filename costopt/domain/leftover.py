"""What a cloud still holds of ours besides nodes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class OrphanedResource:
    """A thing with our owner tag that no living node uses, such as a volume.

    ``kind`` is the provider's word for it, ``place`` is "provider/region". ``created_at`` is None
    where the provider does not tell. ``usd_per_hour`` is what it costs while it is there, None
    where that is not known. ``serves_job``: the job may need it again as long as it is not over.
    """

    kind: str
    name: str
    place: str
    job: str
    created_at: datetime | None
    usd_per_hour: float | None
    serves_job: bool


@runtime_checkable
class ResourceCleanup(Protocol):
    """A provider that makes other things than nodes, and can remove them."""

    def orphaned_resources(self, owner: str) -> tuple[OrphanedResource, ...]:
        """Everything with this owner tag that is no node and that no living node uses.

        Raises ProviderError.
        """
        ...

    def delete_resource(self, leftover: OrphanedResource) -> None:
        """Remove it; a missing one is no error. Raises ProviderError."""
        ...
