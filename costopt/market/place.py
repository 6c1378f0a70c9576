"""Where a public record was taken, from the names it uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

TRACE_INSTANCE_TYPES = {
    ("aws", "k80", 1): "p2.xlarge",
    ("aws", "k80", 8): "p2.8xlarge",
    ("aws", "k80", 16): "p2.16xlarge",
    ("aws", "v100", 1): "p3.2xlarge",
    ("aws", "v100", 4): "p3.8xlarge",
    ("aws", "v100", 8): "p3.16xlarge",
}
"""Instance types by provider, GPU and count (docs.aws.amazon.com/ec2, families P2 and P3)."""

_TRACE = re.compile(
    r"availability_\d+-node_(?P<provider>[a-z]+)-(?P<month>\d\d)-(?P<day>\d\d)-(?P<year>\d{4})"
    r"_(?P<zone>[a-z0-9-]+)_(?P<gpu>[a-z0-9]+)_(?P<count>\d+)\.json"
)


@dataclass(frozen=True, slots=True)
class TraceFileName:
    """What the file name of a public spot trace says."""

    provider: str
    zone: str
    gpu: str
    gpu_count: int
    start_at: datetime

    @classmethod
    def parse(cls, file_name: str) -> TraceFileName | None:
        """From names like availability_1-node_aws-02-15-2023_us-east-1a_v100_1.json, else None."""
        match = _TRACE.fullmatch(file_name)
        if match is None:
            return None
        try:
            start_at = datetime(
                int(match["year"]), int(match["month"]), int(match["day"]), tzinfo=UTC
            )
        except ValueError:
            return None
        return cls(match["provider"], match["zone"], match["gpu"], int(match["count"]), start_at)


def instance_type_of(provider: str, gpu: str, gpu_count: int) -> str | None:
    """The instance type with these GPUs, or None where it is not known."""
    return TRACE_INSTANCE_TYPES.get((provider, gpu, gpu_count))
