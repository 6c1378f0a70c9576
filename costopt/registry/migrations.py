"""The registry's tables, as steps that only go forward.

Times are text, ISO 8601 in UTC with microseconds, so that both databases order and keep them
alike.
"""

from __future__ import annotations

from costopt.database.migrations import Migration, Migrations

INITIAL: Migration = (
    """
    CREATE TABLE submissions (
        name TEXT PRIMARY KEY,
        place INTEGER NOT NULL UNIQUE,
        tenant TEXT NOT NULL,
        priority INTEGER NOT NULL,
        job_document TEXT NOT NULL,
        policy_document TEXT NOT NULL,
        workdir TEXT NOT NULL,
        submitted_at TEXT NOT NULL,
        submitted_by TEXT NOT NULL,
        desired_state TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE proposals (
        id TEXT PRIMARY KEY,
        place INTEGER NOT NULL UNIQUE,
        job TEXT NOT NULL,
        kind TEXT NOT NULL,
        pool TEXT NOT NULL,
        nodes INTEGER NOT NULL,
        reason TEXT NOT NULL,
        proposed_at TEXT NOT NULL,
        node_id TEXT,
        usd_per_hour DOUBLE PRECISION,
        state TEXT NOT NULL,
        answered_by TEXT,
        answered_at TEXT,
        outcome TEXT NOT NULL
    )
    """,
    "CREATE INDEX proposals_by_state ON proposals (state, place)",
    """
    CREATE TABLE changes (
        number INTEGER PRIMARY KEY,
        at TEXT NOT NULL,
        who TEXT NOT NULL,
        what TEXT NOT NULL,
        subject TEXT NOT NULL,
        detail TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE halts (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        reason TEXT NOT NULL,
        who TEXT NOT NULL,
        at TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE modes (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        mode TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE tokens (
        name TEXT PRIMARY KEY,
        scopes TEXT NOT NULL,
        lookup TEXT NOT NULL UNIQUE,
        digest TEXT NOT NULL,
        added_at TEXT NOT NULL,
        added_by TEXT NOT NULL,
        tenant TEXT
    )
    """,
)

MIGRATIONS = Migrations("registry", "submissions", (INITIAL,), first=4)
