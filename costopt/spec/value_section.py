"""What an hour until the end of a job is worth, as a job file says it."""

from __future__ import annotations

from pydantic import Field

from costopt.domain.job import USD_PER_HOUR_WAITED
from costopt.spec.fields import FileModel, Positive


class ValueSection(FileModel):
    """What an hour until the job's end is worth: the product of both."""

    usd_per_hour_waited: Positive = Field(
        default=USD_PER_HOUR_WAITED, description="dollars that an hour of it is worth"
    )
    priority: Positive = Field(
        default=1.0, description="times as much as another job whose hour is worth as many dollars"
    )
