"""The option --output, and the tables that it formats on stdout."""

from __future__ import annotations

import sys

import click

from costopt.render.table import OutputFormat, Table

output_option = click.option(
    "--output",
    "-o",
    type=click.Choice([each.value for each in OutputFormat]),
    default=OutputFormat.TABLE.value,
    envvar="COSTOPT_OUTPUT",
    show_envvar=True,
    help="How to write the answer to stdout.",
)


def print_table(table: Table, output: str) -> None:
    """Write the table to stdout."""
    from costopt.render.writers import write_table

    write_table(table, OutputFormat(output), sys.stdout)
