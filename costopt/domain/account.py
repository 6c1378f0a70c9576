"""The account that the jobs run in: its quotas, and who shares it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from costopt.domain.quota import Quota
from costopt.domain.tenant import Tenant


@dataclass(frozen=True, slots=True)
class Account:
    """Quotas and tenants, these by name. A job whose tenant is not among them has weight 1."""

    quotas: tuple[Quota, ...] = ()
    tenants: Mapping[str, Tenant] = field(default_factory=dict)


UNLIMITED = Account()
"""An account of which nothing is told."""
