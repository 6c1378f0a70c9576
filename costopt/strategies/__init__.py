"""Deadline strategies behind one protocol; a policy selects one by name."""

from costopt.strategies.registry import (
    build,
    check,
    is_joint,
    joins_tenants,
    shield,
    strategy_names,
)

__all__ = ["build", "check", "is_joint", "joins_tenants", "shield", "strategy_names"]
