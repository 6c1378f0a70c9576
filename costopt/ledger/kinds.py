"""How both databases find the events of one kind, by an index on (kind, job, seq)."""

from __future__ import annotations

INDEX = "CREATE INDEX events_by_kind ON events (kind, job, seq)"
NEWEST = """
    SELECT seq, body FROM events WHERE kind = :kind AND job = :job AND seq < :before
    ORDER BY seq DESC LIMIT :most
"""
LAST_OF_EACH = """
    SELECT seq, body FROM events
    WHERE seq IN (SELECT max(seq) FROM events WHERE kind = :kind GROUP BY job)
    ORDER BY seq DESC
"""
PAGE_EVENTS = 100
END = 2**62
"""Above the number of any event."""
