"""The account that the jobs run in: its quotas, who shares it, and the clouds it is with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from costopt.domain.limits import Resource
from costopt.domain.quota import Quota
from costopt.domain.tenant import Tenant


@dataclass(frozen=True, slots=True)
class AccountGuards:
    """What all jobs of the account together may cost and hold; None is no limit.

    Dollars in all and per calendar month (UTC) stop the jobs, the others stop launches.
    """

    max_usd: float | None = None
    max_usd_per_month: float | None = None
    max_usd_per_hour: float | None = None
    max_nodes: int | None = None
    max_launches_per_hour: int | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """Quotas and tenants, these by name. Job files whose tenant is not among them are refused,
    where there are any.

    ``owner`` tags everything that is launched: what bears another tag is never touched. ``store``
    is the URI through which nodes and controller exchange messages, code and checkpoints, None
    where the account runs nothing. ``providers`` holds each adapter's options by its name.
    """

    quotas: tuple[Quota, ...] = ()
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    owner: str = "costopt"
    store: str | None = None
    providers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    guards: AccountGuards = AccountGuards()

    @property
    def limits(self) -> tuple[Quota, ...]:
        """The quotas, and as quotas what each tenant and all of them may have at a time."""
        of_tenants = (
            Quota(f"of tenant {tenant.name}", tenant=tenant.name, **_concurrent(tenant))
            for tenant in self.tenants.values()
            if _concurrent(tenant)
        )
        of_all = _concurrent(self.guards)
        quotas = (*self.quotas, *of_tenants)
        return (*quotas, Quota("of the account's guards", **of_all)) if of_all else quotas


def _concurrent(holder: Tenant | AccountGuards) -> dict[str, Any]:
    """The limits on concurrent use that ``holder`` sets, as fields of a Quota."""
    found = ((resource.field, resource.limit_of(holder)) for resource in Resource)
    return {field: most for field, most in found if most is not None}


UNLIMITED = Account()
"""An account of which nothing is told."""
