"""``notice_source()`` by name.

How a node learns that its provider is about to take it: one source per kind of cloud.

From the command line's word to a source of notices.
"""

from __future__ import annotations

from pathlib import Path

from costopt.agent.notices.aws import AwsNoticeSource
from costopt.agent.notices.base import FileNoticeSource, NoNotices, NoticeSource
from costopt.agent.notices.gcp import GcpNoticeSource

KINDS = "file:PATH, aws, gcp or none"


def notice_source(text: str, poll_s: float = 1.0) -> NoticeSource:
    """``file:PATH``, ``aws``, ``gcp``, ``gcp:SECONDS`` (of notice: 30 or 120) or ``none``.

    ``poll_s`` is between questions to a metadata service. Raises ValueError.
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
        case "none", "":
            return NoNotices()
    raise ValueError(f"{text!r} is no source of notices: use {KINDS}")
