"""The daemon's log: one JSON object per line, with secrets redacted.

The keys are ``at``, ``level``, ``logger``, ``message``, the record's extra attributes (``job``,
``decision_id`` …), and ``error`` with the traceback if there is one.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

REDACTED = "…"
_SECRETS = re.compile(
    r"costopt_[0-9a-f]+_[0-9a-f]+"  # a token
    r"|(?<=[Bb]earer )\S+"
    r"|(?<=://)[^/\s:@]*:[^/\s@]*(?=@)"  # user and password of a URL
    r"|(?<=hooks\.slack\.com/services/)\S+"
)
_OWN = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON without line breaks."""
        line: dict[str, Any] = {
            "at": _instant(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = {key: value for key, value in vars(record).items() if key not in _OWN}
        line |= {key: value for key, value in extra.items() if value is not None}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(_clean(line), default=str)


def log_as_json(stream: TextIO | None = None) -> logging.Logger:
    """Log this process to ``stream`` (default: stderr) as JSON; return the daemon's logger."""
    writer = logging.StreamHandler(stream or sys.stderr)
    writer.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers = [writer]
    root.setLevel(logging.WARNING)
    own = logging.getLogger("costopt")
    own.setLevel(logging.INFO)
    return own


def redact(text: str) -> str:
    """Return the text without tokens, passwords in URLs and a webhook's secret path."""
    return _SECRETS.sub(REDACTED, text)


def _clean(value: Any) -> Any:
    match value:
        case str():
            return redact(value)
        case dict():
            return {key: _clean(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_clean(inner) for inner in value]
        case int() | float() | None:
            return value
    return redact(str(value))


def _instant(created: float) -> str:
    return datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
