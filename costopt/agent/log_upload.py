"""Uploads what this node's trainers print to the job's store, beside the agent's loop."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from costopt.domain.errors import CostoptError
from costopt.protocol.node_logs import MAX_SEGMENT_BYTES, TRAINER_LOGS, LogPosition, NodeLog

MAX_BYTES = 64 << 20
"""Per node; beyond it only the last ``TAIL_BYTES`` before each notice and end are stored."""
TAIL_BYTES = 64 << 10
MARKER_BYTES = 1 << 10
MAX_LINE_BYTES = 4 << 10
"""A longer line, such as a progress bar's, may be cut anywhere."""
TRUNCATION_MARKER = (
    f"\n[costopt: log limit of {MAX_BYTES >> 20} MiB reached: only the end of the rest is stored]\n"
)


@dataclass(frozen=True, slots=True)
class _Fresh:
    """What was added to one attempt's log: the bytes from ``begin`` to ``until`` of the file."""

    attempt: int
    path: Path
    begin: int
    until: int


class LogUpload:
    """Uploads new output every ``every_s`` seconds, at most the newest ``MAX_SEGMENT_BYTES`` of it.

    Omitted output is replaced by a line that says how much is missing. A store that refuses is
    retried; training never notices.
    """

    def __init__(self, log: NodeLog, folder: Path, every_s: float) -> None:
        self._log = log
        self._folder = folder
        self._every_s = every_s
        self._end: LogPosition | None = None
        self._failure = ""
        self._turn = threading.Condition()
        self._asked = self._served = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="log-upload", daemon=True)

    def start(self) -> None:
        """Start the thread that uploads."""
        self._thread.start()

    def flush(self, within_s: float = 0.0) -> None:
        """Upload what there is now; wait ``within_s`` seconds for it at most."""
        with self._turn:
            self._asked += 1
            asked = self._asked
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._served >= asked, within_s)

    def close(self, within_s: float) -> None:
        """Upload the rest, waiting ``within_s`` seconds at most, then stop."""
        self._closing = True
        self.flush()
        self._thread.join(within_s)

    def _run(self) -> None:
        while not self._closing or self._served < self._asked:
            with self._turn:
                self._turn.wait_for(lambda: self._served < self._asked, self._every_s)
                asked = self._asked
            self._try_to_send(last=asked > self._served)
            with self._turn:
                self._served = asked
                self._turn.notify_all()

    def _try_to_send(self, *, last: bool) -> None:
        failure = ""
        try:
            self._send(last=last)
        except (CostoptError, OSError) as error:
            failure = str(error)
            self._end = None  # a refused write may have arrived
        if failure and failure != self._failure:
            print(f"the log cannot be uploaded: {failure}", file=sys.stderr, flush=True)  # noqa: T201
        self._failure = failure

    def _send(self, *, last: bool) -> None:
        end = self._end = self._end or self._log.end()
        fresh = self._fresh(end)
        full = end.offset >= MAX_BYTES
        if not fresh or (full and not last):
            return
        data = _newest(fresh, TAIL_BYTES if full else MAX_SEGMENT_BYTES - MARKER_BYTES)
        if not full and end.offset + len(data) >= MAX_BYTES:
            data += TRUNCATION_MARKER.encode()
        self._end = self._log.append(end, data, fresh[-1].attempt, fresh[-1].until)

    def _fresh(self, end: LogPosition) -> list[_Fresh]:
        """Return what no stored piece covers yet. Only the newest attempt's log grows."""
        fresh = []
        for path in sorted(self._folder.glob(TRAINER_LOGS)):
            attempt, until = int(path.stem.rpartition("-")[2]), path.stat().st_size
            begin = end.until if attempt == end.attempt else 0
            if attempt >= end.attempt and until > begin:
                fresh.append(_Fresh(attempt, path, begin, until))
        return fresh


def _newest(fresh: list[_Fresh], max_bytes: int) -> bytes:
    """Return the last ``max_bytes`` from the start of a line, preceded by how much was omitted."""
    skipped = max(0, sum(part.until - part.begin for part in fresh) - max_bytes)
    data, skip = b"", skipped
    for part in fresh:
        begin = min(part.until, part.begin + skip)
        skip -= begin - part.begin
        with part.path.open("rb") as file:
            file.seek(begin)
            data += file.read(part.until - begin)
    if not skipped:
        return data
    line = data.find(b"\n", 0, MAX_LINE_BYTES) + 1
    return f"\n[costopt: {skipped + line:,} bytes are omitted here]\n".encode() + data[line:]
