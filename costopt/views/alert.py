"""An alert of the daemon."""

from __future__ import annotations

from costopt.formatting import second_text
from costopt.render.table import Column
from costopt.views.job import job_path

ALERT_COLUMNS = (
    Column("at", "Time (UTC)", second_text),
    Column("kind", "Kind", tone="bad"),
    Column("job", "Job", link=job_path),
    Column("message", "Message", fold_at=60),
)
