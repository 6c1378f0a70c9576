"""The ledger's tables on PostgreSQL, as steps that only go forward."""

from __future__ import annotations

from costopt.database.steps import Migration, Migrations
from costopt.ledger.kinds import INDEX

POSTGRES_MIGRATIONS: tuple[Migration, ...] = (
    (
        """
        CREATE TABLE events (
            seq BIGINT PRIMARY KEY,
            job TEXT COLLATE "C" NOT NULL,
            kind TEXT NOT NULL,
            at TIMESTAMPTZ NOT NULL,
            body TEXT NOT NULL
        )
        """,
        "CREATE INDEX events_by_job ON events (job, seq)",
        """
        CREATE FUNCTION costopt_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'the ledger is append-only' USING ERRCODE = 'raise_exception';
        END
        $$
        """,
        """
        CREATE TRIGGER events_never_change BEFORE UPDATE OR DELETE ON events
        FOR EACH ROW EXECUTE FUNCTION costopt_append_only()
        """,
        """
        CREATE TRIGGER events_never_vanish BEFORE TRUNCATE ON events
        FOR EACH STATEMENT EXECUTE FUNCTION costopt_append_only()
        """,
        """
        CREATE TABLE leadership (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            holder TEXT NOT NULL,
            fence BIGINT NOT NULL,
            beat BIGINT NOT NULL,
            lease_s DOUBLE PRECISION NOT NULL
        )
        """,
        "INSERT INTO leadership (id, holder, fence, beat, lease_s) VALUES (1, '', 0, 0, 0)",
        """
        CREATE TABLE folds (
            job TEXT COLLATE "C" NOT NULL,
            part TEXT NOT NULL,
            seq BIGINT NOT NULL,
            code TEXT NOT NULL,
            body BYTEA NOT NULL,
            PRIMARY KEY (job, part)
        )
        """,
    ),
    (INDEX,),
)

STEPS = Migrations("ledger", POSTGRES_MIGRATIONS)
