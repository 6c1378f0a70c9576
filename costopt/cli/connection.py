"""The options that name a daemon and the token for it, and the connection to it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from costopt.cli.options import DEFAULT_STATE_DIR

if TYPE_CHECKING:
    from costopt.client.client import DaemonClient

DEFAULT_SERVER = f"unix:{DEFAULT_STATE_DIR / 'daemon.sock'}"
TOKEN = "COSTOPT_TOKEN"  # noqa: S105 - the variable's name
MAX_TOKEN_BYTES = 4096

Command = TypeVar("Command", bound=Callable[..., Any])

_server = click.option(
    "--server",
    default=DEFAULT_SERVER,
    envvar="COSTOPT_SERVER",
    show_envvar=True,
    metavar="ADDRESS",
    help="The daemon: unix:PATH, http://HOST:PORT or https://HOST.",
)
_token_file = click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="COSTOPT_TOKEN_FILE",
    show_envvar=True,
    metavar="FILE",
    help="Holds the token for a daemon on the network; COSTOPT_TOKEN takes precedence.",
)


def server_options(command: Command) -> Command:
    """Add ``--server`` and ``--token-file``."""
    return _server(_token_file(command))


def optional_server_options(command: Command) -> Command:
    """Add the same options to a command that reads the state directory if no server is named."""
    option = click.option(
        "--server",
        envvar="COSTOPT_SERVER",
        show_envvar=True,
        metavar="ADDRESS",
        help="Query this daemon instead of the state directory.",
    )
    return option(_token_file(command))


def planned_server_options(command: Command) -> Command:
    """Add the same options to ``plan``, which queries a daemon only where one is named."""
    option = click.option(
        "--server",
        metavar="ADDRESS",
        help="Plan the job beside those that this daemon runs; nothing is submitted.",
    )
    return option(_token_file(command))


def connect(server: str, token_file: Path | None) -> DaemonClient:
    """Return a client. Raise SpecError for a malformed address or an unreadable token file."""
    from costopt.client.client import DaemonClient, parse_address

    address = parse_address(server)
    token = os.environ.get(TOKEN) or _read(token_file)
    if token is not None and address.is_plaintext:
        click.echo(
            f"note: the token goes to {address.host} unencrypted; use https:// or an SSH tunnel",
            err=True,
        )
    return DaemonClient(address, token)


def _read(path: Path | None) -> str | None:
    from costopt.domain.errors import SpecError

    if path is None:
        return None
    try:
        with path.open("rb") as file:
            text = file.read(MAX_TOKEN_BYTES).decode("ascii").strip()
    except OSError as error:
        raise SpecError(
            f"{path}: cannot be read: {(error.strerror or '').lower()}", code="unreadable"
        ) from None
    except UnicodeDecodeError:
        text = ""
    if not text or any(character.isspace() for character in text):
        raise SpecError(
            f"{path}: contains no token",
            hint="it should contain what costopt daemon token add printed",
            code="no_token",
        )
    return text
