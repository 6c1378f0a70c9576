"""costopt token"""

from __future__ import annotations

from pathlib import Path

import click

from costopt.cli.output import output_option, print_table
from costopt.cli.server import connect, server_options
from costopt.formatting import iso_minute_text
from costopt.render.table import Column, Table

TOKEN_COLUMNS = (
    Column("name", "Name"),
    Column("scopes", "May"),
    Column("tenant", "Tenant"),
    Column("added_at", "Added", iso_minute_text),
    Column("added_by", "By"),
)


@click.group()
def token() -> None:
    """Make, list and revoke tokens for a daemon.

    A token is needed over the network, none over the daemon's local socket.
    """


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(["read", "submit", "admin"]),
    multiple=True,
    default=("read",),
    help="What its bearer may do; submit holds read, admin holds all.",
)
@click.option("--tenant", help="Bind it to this tenant's jobs; default: those of all.")
@server_options
def add(
    name: str, scopes: tuple[str, ...], tenant: str | None, server: str, token_file: Path | None
) -> None:
    """Make a token and print it, this once."""
    told = connect(server, token_file).send(
        "POST", "tokens", body={"name": name, "scopes": list(scopes), "tenant": tenant}
    )
    rights = " and ".join(told["scopes"]) + (f" of tenant {tenant}" if tenant else "")
    click.echo(told["token"])
    click.echo(f"note: {name} may {rights}; it cannot be told again", err=True)


@token.command("list")
@server_options
@output_option
def list_(server: str, token_file: Path | None, output: str) -> None:
    """List tokens, without their secrets."""
    rows = connect(server, token_file).get("tokens")["tokens"]
    print_table(Table("costopt.tokens/1", "Tokens", TOKEN_COLUMNS, rows), output)


@token.command()
@click.argument("name")
@server_options
def revoke(name: str, server: str, token_file: Path | None) -> None:
    """Make a token worthless at once."""
    connect(server, token_file).send("DELETE", "tokens", name)
    click.echo(f"{name} is no token any more", err=True)
