"""The kinds of alerts. docs/daemon.md has a table of them, by which receivers select."""

from __future__ import annotations

from enum import StrEnum


class AlertKind(StrEnum):
    """What an operator should see."""

    BACKUP = "backup"
    BUDGET = "budget"
    CARBON = "carbon"
    CLOCK = "clock"
    DATABASE = "database"
    DEADLINE = "deadline"
    FAILED = "failed"
    FORECAST = "forecast"
    HALT = "halt"
    INTERRUPTIONS = "interruptions"
    NODES = "nodes"
    ORPHAN = "orphan"
    TICK = "tick"
    TROUBLE = "trouble"
