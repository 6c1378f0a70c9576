"""What a person sees while a job runs: a bar on a terminal, lines of news elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import click

from costopt.engine.loop import OnTick
from costopt.engine.tick import TickResult
from costopt.session.live import LiveRun


@contextmanager
def progress_view(run: LiveRun) -> Iterator[OnTick]:
    """A callback for each tick. Everything goes to stderr."""
    if sys.stderr.isatty():
        with _bar(run) as on_tick:
            yield on_tick
    else:
        yield _news_lines(run, click_line)


def click_line(text: str) -> None:
    """One line to stderr. A reader who has gone, or a terminal that was closed, stops no run."""
    with suppress(OSError):
        click.echo(text, err=True)


def _news_lines(run: LiveRun, write: Callable[[str], None]) -> OnTick:
    seen = max((r.seq for r in run.ledger.events(run.job.name)), default=0)

    def on_tick(_: TickResult) -> None:
        nonlocal seen
        from costopt.render.events import describe_event

        for recorded in run.ledger.events(run.job.name, after=seen):
            seen = recorded.seq
            row = describe_event(recorded.event)
            if not row.routine:
                write(f"{row.at:%m-%d %H:%M:%S}  {row.what}: {row.detail}")

    return on_tick


@contextmanager
def _bar(run: LiveRun) -> Iterator[OnTick]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[state]}"),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(
            run.job.name, total=run.job.work.amount, state="starting", figures=""
        )
        news = _news_lines(run, lambda line: console.print(line, highlight=False, markup=False))

        def on_tick(result: TickResult) -> None:
            news(result)
            done = run.engine.progress_of(run.job.name)
            progress.update(
                task,
                completed=done.done_units,
                state=f"{done.state.value} on {len(result.nodes)} node(s)",
                figures=_figures(run, result),
            )

        yield on_tick


def _figures(run: LiveRun, result: TickResult) -> str:
    summary = run.engine.journal.accounts[run.job.name].summary(result.now)
    energy = "energy unknown" if summary.kwh is None else f"{summary.kwh:.2f} kWh"
    return f"${summary.usd:.2f}  {energy}  {_eta(run, result)}"


def _eta(run: LiveRun, result: TickResult) -> str:
    done = run.engine.progress_of(run.job.name)
    speed = done.measured_units_per_s
    if not speed:
        return "ETA –"
    left = timedelta(seconds=(run.job.work.amount - done.done_units) / speed)
    slack_h = (run.job.deadline_at - result.now - left).total_seconds() / 3600
    return f"ETA {result.now + left:%H:%M}, {slack_h:+.1f} h to the deadline"
