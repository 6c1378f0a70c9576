"""What the daemon did: operator actions, as its audit log holds them, and runs of its tasks."""

from __future__ import annotations

from costopt.formatting import second_text
from costopt.render.table import Column

AUDIT_COLUMNS = (
    Column("at", "Time (UTC)", second_text),
    Column("who", "Operator"),
    Column("what", "Action"),
    Column("subject", "Subject", lambda subject: subject or "the daemon"),
    Column("detail", "Detail"),
)
TASK_RUN_COLUMNS = (
    Column("task", "Task"),
    Column("ok", "OK", right=True),
    Column("failed", "Failed", right=True, tone=lambda row: "bad" if row["failed"] else "plain"),
    Column("missed", "Missed", right=True),
)
