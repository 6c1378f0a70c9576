"""Who shares the account, with which claim on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tenant:
    """A team whose jobs share an account with others'.

    Where capacity is short, each tenant is served its fair share, ``weight`` over the sum of the
    weights of those with unfinished jobs, before any is served more. Limits that are None do not
    limit. ``prefixes`` are addresses in object stores below which its jobs' checkpoints and data
    may lie.
    """

    name: str
    weight: float = 1.0
    max_usd: float | None = None
    max_usd_per_month: float | None = None
    max_usd_per_hour: float | None = None
    max_nodes: int | None = None
    prefixes: tuple[str, ...] = ()
