"""The options --output and --wide, and the tables that they format on stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import click

from costopt.cli.options import WIDE, wide_option
from costopt.render.table import OutputFormat, Table

Command = TypeVar("Command", bound=Callable[..., object])

_format_option = click.option(
    "--output",
    "-o",
    type=click.Choice([each.value for each in OutputFormat]),
    default=OutputFormat.TABLE.value,
    envvar="COSTOPT_OUTPUT",
    show_envvar=True,
    help="How to write the answer to stdout.",
)


def output_option(command: Command) -> Command:
    """Add --output and --wide to a command that prints a table; it gets ``output`` alone."""
    return _format_option(wide_option(command))


def print_table(table: Table, output: str) -> None:
    """Write the table to stdout, with all columns if the command has --wide."""
    from costopt.render.writers import write_table

    context = click.get_current_context(silent=True)
    wide = context is not None and bool(context.meta.get(WIDE))
    write_table(table, OutputFormat(output), sys.stdout, wide=wide)
