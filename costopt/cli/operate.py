"""The commands that control a daemon: approve, halt, unhalt, mode and token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.connection import connect, server_options
from costopt.cli.options import output_option, print_table
from costopt.formatting import minute_text
from costopt.render.table import Column, Table
from costopt.views.proposal import PROPOSAL_COLUMNS

if TYPE_CHECKING:
    from costopt.client.client import DaemonClient


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--reject", is_flag=True, help="Reject instead.")
@server_options
@output_option
def approve(
    ids: tuple[str, ...], reject: bool, server: str, token_file: Path | None, output: str
) -> None:
    """Approve actions that a daemon proposed.

    Without ID, list the proposals that wait for an answer. The next tick does what was approved, if
    it is still needed then.
    """
    client = connect(server, token_file)
    if not ids:
        print_table(_open(client), output)
        return
    for each in ids:
        answer = client.send("POST", "proposals", each, "reject" if reject else "approve")
        click.echo(f"{each}: {answer['state']}", err=True)


@click.command()
@click.argument("reason", nargs=-1)
@server_options
def halt(reason: tuple[str, ...], server: str, token_file: Path | None) -> None:
    """Stop all launches of a daemon at once.

    Running nodes go on, checkpoint and may be released. costopt daemon unhalt ends it.
    """
    said = " ".join(reason).strip() or "requested on the command line"
    answer = connect(server, token_file).send("PUT", "halt", body={"reason": said})["halt"]
    click.echo(f"halted by {answer['who']}: {answer['reason']}", err=True)


@click.command()
@server_options
def unhalt(server: str, token_file: Path | None) -> None:
    """Allow a halted daemon to launch again."""
    connect(server, token_file).send("DELETE", "halt")
    click.echo("launches are allowed again", err=True)


@click.command()
@click.argument("mode", required=False, type=click.Choice(["observe", "recommend", "enforce"]))
@server_options
def mode(mode: str | None, server: str, token_file: Path | None) -> None:
    """Show or set the daemon's mode.

    observe plans and records and never acts, recommend asks for approval, enforce acts.
    """
    client = connect(server, token_file)
    if mode is None:
        click.echo(client.get("mode")["mode"])
        return
    answer = client.send("PUT", "mode", body={"mode": mode})
    click.echo(f"from the next tick the daemon's mode is {answer['mode']}", err=True)


def _open(client: DaemonClient) -> Table:
    rows = client.get_all("proposals", rows="proposals", state="open")
    return Table("costopt.proposals/1", "Proposals that wait for an answer", PROPOSAL_COLUMNS, rows)


TOKEN_COLUMNS = (
    Column("name", "Name"),
    Column("scopes", "May"),
    Column("tenant", "Tenant"),
    Column("added_at", "Added", minute_text),
    Column("added_by", "By"),
)


@click.group()
def token() -> None:
    """Create, list and revoke tokens for a daemon.

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
    help="Rights of the token; submit includes read, admin includes all.",
)
@click.option("--tenant", help="Bind it to this tenant's jobs; default: those of all.")
@server_options
def add(
    name: str, scopes: tuple[str, ...], tenant: str | None, server: str, token_file: Path | None
) -> None:
    """Create a token. It is shown only once."""
    answer = connect(server, token_file).send(
        "POST", "tokens", body={"name": name, "scopes": list(scopes), "tenant": tenant}
    )
    rights = " and ".join(answer["scopes"]) + (f" of tenant {tenant}" if tenant else "")
    click.echo(answer["token"])
    click.echo(f"note: {name} may {rights}; it cannot be shown again", err=True)


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
    """Revoke a token at once."""
    connect(server, token_file).send("DELETE", "tokens", name)
    click.echo(f"token {name} revoked", err=True)
