"""How a node learns that its provider is about to interrupt it: one source per kind of cloud.

``notice_source`` returns the source that a command line names.
"""

from __future__ import annotations

from pathlib import Path

from costopt.agent.notices.aws import AwsNoticeSource
from costopt.agent.notices.base import FileNoticeSource, NoNotices, NoticeSource
from costopt.agent.notices.gcp import GcpNoticeSource
from costopt.agent.notices.sigterm import SigtermNoticeSource

KINDS = "file:PATH, aws, gcp, sigterm:SECONDS or none"
MAX_GRACE_S = 86_400.0


def notice_source(text: str, poll_s: float = 1.0) -> NoticeSource:
    """Return the source for ``file:PATH``, ``aws``, ``gcp``, ``gcp:SECONDS``, ``sigterm:SECONDS``
    or ``none``.

    SECONDS is the notice period: 30 or 120 of Google Cloud, the partition's GraceTime of Slurm, a
    pod's grace period after its kubelet's SIGTERM. ``poll_s`` is the interval between requests to a
    metadata service. Raise ValueError for any other text.
    """
    kind, _, rest = text.partition(":")
    match kind, rest:
        case "file", path if path:
            return FileNoticeSource(Path(path))
        case "aws", "":
            return AwsNoticeSource(poll_s)
        case "gcp", "":
            return GcpNoticeSource(poll_s)
        case "gcp", seconds if seconds.isdigit():
            return GcpNoticeSource(poll_s, notice_s=float(seconds))
        case "sigterm", seconds if (grace_s := _seconds(seconds)) is not None:
            return SigtermNoticeSource(grace_s)
        case "none", "":
            return NoNotices()
    raise ValueError(f"{text!r} is not a source of notices: use {KINDS}")


def _seconds(text: str) -> float | None:
    try:
        return value if 0 <= (value := float(text)) <= MAX_GRACE_S else None
    except ValueError:
        return None
