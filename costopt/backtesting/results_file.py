"""Scores by key in a file that grows line by line, so that a backtest can be resumed.

The first line names the schema and the settings that the scores depend on. Each line after it is
{"key", "score", "check"} in JSON, ``check`` being a digest of the other two. A line that was cut
off or altered is dropped, and its trial is run again.
"""

from __future__ import annotations

import csv
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from io import BufferedRandom
from pathlib import Path
from typing import Any

from costopt.backtesting.trial import Score, Trial
from costopt.domain.errors import StoreError

SCHEMA = "costopt.backtest.results/1"

Settings = Mapping[str, str | float | bool]
"""By name; digests of what is long."""


class ResultsFile:
    """What is known already, and where more is added. ``dropped`` lines were not to be trusted."""

    def __init__(self, path: Path, file: BufferedRandom, settings: Settings) -> None:
        self.path = path
        self._file = file
        self._settings = settings
        self.known: dict[str, Score] = {}
        self.dropped = 0
        self._read()

    def add(self, key: str, score: Score) -> None:
        """Append a score. Raises StoreError where it cannot be written."""
        try:
            self._file.write(_line(key, score))
            self._file.flush()
        except OSError as error:
            raise _failed(self.path, error) from error
        self.known[key] = score

    def _read(self) -> None:
        head, *lines = self._file.read().splitlines(keepends=True) or [b""]
        if not head.endswith(b"\n"):
            self._begin(head)
            return
        self._check_settings(head)
        for line in lines:
            read = _parse(line) if line.endswith(b"\n") else None
            if read is None:
                self.dropped += 1
            else:
                self.known[read[0]] = read[1]
        if lines and not lines[-1].endswith(b"\n"):
            self._file.seek(-len(lines[-1]), os.SEEK_END)
            self._file.truncate()

    def _begin(self, data: bytes) -> None:
        """A new file, or one whose first line was cut off; any other is somebody else's."""
        begins = _json({"schema": SCHEMA})[:-1]
        if not data.startswith(begins) and not begins.startswith(data):
            raise self._unknown()
        self._file.seek(0)
        self._file.truncate()
        self._file.write(_json({"schema": SCHEMA, "settings": dict(self._settings)}) + b"\n")
        self._file.flush()

    def _check_settings(self, head: bytes) -> None:
        """Raise StoreError for another kind of file, or scores under other settings.

        Settings that only one of the two has, as for one more market, contradict nothing.
        """
        try:
            body = json.loads(head)
            same_schema, before = body["schema"] == SCHEMA, dict(body["settings"])
        except (ValueError, KeyError, TypeError):
            raise self._unknown() from None
        if not same_schema:
            raise self._unknown()
        now = self._settings
        for name in (name for name in before if name in now and now[name] != before[name]):
            old, new = before[name], now[name]
            is_text = isinstance(old, str) or isinstance(new, str)
            how = "has changed" if is_text else f"was {old:g}, and is {new:g}"
            raise StoreError(
                f"{self.path} holds scores of another backtest: {name} {how}",
                hint="backtest as before, or name another file; it is not overwritten",
                code="other_settings",
            )

    def _unknown(self) -> StoreError:
        return StoreError(
            f"{self.path} is not a results file of a backtest",
            hint="name another file; it is not overwritten",
            code="not_results",
        )


@contextmanager
def open_results_file(path: Path, settings: Settings | None = None) -> Iterator[ResultsFile]:
    """Open or begin a results file, for one backtest at a time.

    Raises StoreError where it cannot be used, or was begun with other ``settings``.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _failed(path, error) from error
    with os.fdopen(descriptor, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(
                f"another backtest writes to {path}",
                hint="wait for it or name another file",
                code="in_use",
            ) from error
        yield ResultsFile(path, file, settings or {})


def _line(key: str, score: Score) -> bytes:
    body = {"key": key, "score": asdict(score)}
    return _json({**body, "check": _check(body)}) + b"\n"


def _parse(line: bytes) -> tuple[str, Score] | None:
    try:
        body = json.loads(line)
        check = body.pop("check")
        if check != _check(body) or body["score"].keys() != {f.name for f in fields(Score)}:
            return None
        return body["key"], Score(**body["score"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _check(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(_json(body)).hexdigest()[:16]


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()


def _failed(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write results to {path}: {error.strerror}",
        hint="choose a file in a folder with room that may be written to",
        code="unwritable",
    )


def write_runs(scores: Sequence[tuple[Trial, Score]], path: Path) -> None:
    """One line per run, in an order that is the same every time. Raises StoreError."""
    keys = ("market", "start_at", "deadline_h", "startup_s", "policy")
    rows = sorted(_row(trial, score) for trial, score in scores)
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow((*keys, *(field.name for field in fields(Score))))
            writer.writerows(row for _, row in rows)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror}",
            hint="choose another file for --runs",
            code="unwritable",
        ) from error


def _row(trial: Trial, score: Score) -> tuple[tuple[str, str, float, float, str], list[object]]:
    job = trial.window.job
    deadline_h = (job.until_at - job.start_at).total_seconds() / 3600
    start_at = job.start_at.isoformat().replace("+00:00", "Z")
    key = (trial.window.market, start_at, deadline_h, job.startup_s, trial.label)
    return key, [*key, *asdict(score).values()]
