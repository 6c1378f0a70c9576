"""What a node-hour costs an account, and the kinds of commitments that may pay for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from costopt.domain.money import to_micros


class CommitmentKind(StrEnum):
    """What was bought; its quantity is dollars per hour or nodes."""

    SAVINGS_PLAN = "savings_plan"
    RESERVED_INSTANCES = "reserved_instances"
    COMMITTED_USE = "committed_use"
    FLEXIBLE_COMMITTED_USE = "flexible_committed_use"
    RESERVATION = "reservation"

    @property
    def is_spend(self) -> bool:
        """Return whether dollars per hour are committed, and not nodes."""
        return self in (CommitmentKind.SAVINGS_PLAN, CommitmentKind.FLEXIBLE_COMMITTED_USE)


@dataclass(frozen=True, slots=True)
class AccountPrice:
    """What the account pays for a node-hour.

    ``usd_per_hour`` is what one more adds to the bill. ``list_usd_per_hour`` is the provider's
    public price, None where unknown, ``contracted_usd_per_hour`` the account's own without
    commitments, None where unknown, and ``committed_usd_per_hour`` the part of a commitment that it
    uses, None where unknown. ``why`` says which terms were applied.
    """

    usd_per_hour: float
    list_usd_per_hour: float | None
    contracted_usd_per_hour: float | None
    committed_usd_per_hour: float | None = 0.0
    commitment: CommitmentKind | None = None
    why: str = ""


def listed_micros(price: AccountPrice | None) -> int | None:
    """Return the list price in micro-dollars per hour, as events hold it; None where unknown."""
    usd = None if price is None else price.list_usd_per_hour
    return to_micros(usd)


def committed_micros(price: AccountPrice | None) -> int | None:
    """Return the part of a commitment in micro-dollars per hour; None where unknown."""
    usd = 0.0 if price is None else price.committed_usd_per_hour
    return to_micros(usd)
