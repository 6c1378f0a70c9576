"""An operator action, as the daemon's audit log holds it."""

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
