"""The account that the jobs run in: its quotas, who shares it, and the clouds it is with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from costopt.domain.quota import Quota
from costopt.domain.tenant import Tenant


@dataclass(frozen=True, slots=True)
class Account:
    """Quotas and tenants, these by name. A job whose tenant is not among them has weight 1.

    ``owner`` tags everything that is launched: what bears another tag is never touched. ``store``
    is the URI through which nodes and controller exchange messages, code and checkpoints, None
    where the account runs nothing. ``providers`` holds each adapter's options by its name.
    """

    quotas: tuple[Quota, ...] = ()
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    owner: str = "costopt"
    store: str | None = None
    providers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @property
    def limits(self) -> tuple[Quota, ...]:
        """The quotas, and as quotas what each tenant may have at a time."""
        of_tenants = (
            Quota(
                f"of tenant {tenant.name}",
                tenant=tenant.name,
                max_nodes=tenant.max_nodes,
                max_usd_per_hour=tenant.max_usd_per_hour,
            )
            for tenant in self.tenants.values()
            if tenant.max_nodes is not None or tenant.max_usd_per_hour is not None
        )
        return (*self.quotas, *of_tenants)


UNLIMITED = Account()
"""An account of which nothing is told."""
