"""Every single run of a backtest as a line of CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from costopt.domain.errors import StoreError
from costopt.replay.score import Score
from costopt.replay.trial import Trial


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
    deadline_h = (job.deadline_at - job.start_at).total_seconds() / 3600
    start_at = job.start_at.isoformat().replace("+00:00", "Z")
    key = (trial.window.market, start_at, deadline_h, job.startup_s, trial.label)
    return key, [*key, *asdict(score).values()]
