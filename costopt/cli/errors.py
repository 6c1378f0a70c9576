"""How a command ends on an error: one message on stderr and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import click

from costopt.domain.errors import CostoptError
from costopt.domain.terminal_text import terminal_text

INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""
BROKEN_PIPE = 141
"""128 + SIGPIPE, as for any Unix tool whose reader closed the pipe."""


@dataclass(slots=True)
class CliContext:
    """The values of the options that precede the command's name."""

    debug: bool = False


def run_command(run: Callable[[], object], settings: CliContext) -> int:
    """Run the command line; print its error, if any, on stderr. Return the exit code.

    Raise SystemExit with the exit code from a CostoptError, so that callers find its code and
    subject as ``__cause__``.
    """
    try:
        answer = run()
    except CostoptError as error:
        if settings.debug:
            traceback.print_exc()
        for note in getattr(error, "__notes__", ()):
            print_error("note", note)
        print_error("error", error.message, error.hint)
        raise SystemExit(error.exit_code) from error
    except click.UsageError as error:
        _print_usage_error(error)
        return error.exit_code
    except click.ClickException as error:
        print_error("error", error.format_message())
        return error.exit_code
    except click.Abort as abort:
        interrupted = isinstance(abort.__cause__, KeyboardInterrupt)
        print_error("interrupted" if interrupted else "stopped")
        return INTERRUPTED if interrupted else 1
    except OSError as error:
        if settings.debug:
            traceback.print_exc()
        place = f"{error.filename}: " if error.filename else ""
        print_error("error", f"{place}{(error.strerror or str(error)).lower()}")
        return 1
    except Exception as error:  # noqa: BLE001 - the last resort: no traceback without --debug
        _print_unexpected(error, settings)
        return 1
    return answer if isinstance(answer, int) else 0


def print_error(kind: str, message: str = "", hint: str | None = None) -> None:
    """Print a message for people on stderr: ``kind: message`` and ``→ hint``.

    Notes wrap as tables do; an error stays on its line, for programs that search for it. What a
    message quotes steers no terminal.
    """
    message = terminal_text(message)
    head = click.style(kind, fg="red", bold=True) if kind == "error" else kind
    text = f"{head}: {message}" if message else head
    if hint:
        text += f"\n  → {terminal_text(hint)}"
    if kind == "note":
        from costopt.render.text_table import wrapped

        text = "\n".join(wrapped(text))
    click.echo(text, err=True, color=None if "NO_COLOR" not in os.environ else False)


def reserve_stdout() -> None:
    """Reserve stdout for what Python writes to ``sys.stdout``.

    Libraries in C and child processes write to file descriptor 1, which is stderr from now on: JSON
    on stdout can be parsed whatever they print.
    """
    if sys.stdout is None:  # the program was started with stdout closed
        return
    try:
        stdout = os.dup(1)
        os.dup2(2, 1)
    except OSError:
        return
    sys.stdout = sys.__stdout__ = os.fdopen(  # type: ignore[misc]
        stdout, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors
    )


@contextmanager
def exit_on_closed_pipe() -> Iterator[None]:
    """Exit without a message if the reader of stdout has closed it."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        raise click.exceptions.Exit(BROKEN_PIPE) from None


def _print_usage_error(error: click.UsageError) -> None:
    """Print what is wrong; the help alone where a group was named without a command."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return
    where = f"{error.ctx.command_path} --help" if error.ctx else "costopt --help"
    print_error("error", error.format_message(), f"see {where}")


def _print_unexpected(error: Exception, settings: CliContext) -> None:
    said = " ".join(f"{type(error).__name__}: {error}".split())
    if settings.debug:
        traceback.print_exc()
        print_error("error", f"unexpected {said}", "please report this, with the lines above")
    else:
        print_error(
            "error", f"unexpected {said}", "costopt --debug COMMAND shows where; please report it"
        )
