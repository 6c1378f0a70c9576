"""The account that the jobs run in: its quotas, who shares it, and the clouds it is with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
            Quota(
                f"of tenant {tenant.name}",
                tenant=tenant.name,
                max_nodes=tenant.max_nodes,
                max_usd_per_hour=tenant.max_usd_per_hour,
            )
            for tenant in self.tenants.values()
            if tenant.max_nodes is not None or tenant.max_usd_per_hour is not None
        )
        guards = self.guards
        if guards.max_nodes is None and guards.max_usd_per_hour is None:
            return (*self.quotas, *of_tenants)
        of_all = Quota(
            "of the account's guards",
            max_nodes=guards.max_nodes,
            max_usd_per_hour=guards.max_usd_per_hour,
        )
        return (*self.quotas, *of_tenants, of_all)


UNLIMITED = Account()
"""An account of which nothing is told."""
