"""The options that name a daemon or a ledger and the token for it, and what they open."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from costopt.cli.errors import print_error
from costopt.cli.options import DEFAULT_STATE_DIR

if TYPE_CHECKING:
    from costopt.client.client import DaemonClient
    from costopt.source.base import Source

TOKEN = "COSTOPT_TOKEN"  # noqa: S105 - the variable's name
MAX_TOKEN_BYTES = 4096

Command = TypeVar("Command", bound=Callable[..., Any])
OpenSource = Callable[[], "Source"]

_server = partial(
    click.option,
    "--server",
    envvar="COSTOPT_SERVER",
    show_envvar=True,
    metavar="ADDRESS",
    help="The daemon: unix:PATH, http://HOST:PORT or https://HOST; default: that of this folder, "
    "else of this user.",
)
_ledger = click.option(
    "--state-dir",
    envvar="COSTOPT_STATE_DIR",
    show_envvar=True,
    metavar="FOLDER|LEDGER",
    help="Read the ledger in this state directory, this file or PostgreSQL in place of a daemon; "
    f"default: {DEFAULT_STATE_DIR} if no daemon is found.",
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
    """Add ``--server``, which is never None then, and ``--token-file``."""
    return _server(callback=_or_nearest)(_token_file(command))


def _or_nearest(context: click.Context, option: click.Parameter, server: str | None) -> str:  # noqa: ARG001
    from costopt.source.find import find_server

    return server or find_server(DEFAULT_STATE_DIR)


def planned_server_options(command: Command) -> Command:
    """Add the same options to ``plan``, which queries a daemon only where one is named."""
    option = click.option(
        "--server",
        metavar="ADDRESS",
        help="Plan the job beside those that this daemon runs; nothing is submitted.",
    )
    return option(_token_file(command))


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--server``, ``--state-dir`` and ``--token-file`` to a command that reads runs.

    It gets ``source``, which opens what they name or, without them, what is found.
    """

    @wraps(command)
    def read(
        *arguments: Any,
        server: str | None,
        state_dir: str | None,
        token_file: Path | None,
        **options: Any,
    ) -> Any:
        named = _one_of(server, state_dir)
        return command(*arguments, source=partial(_open, *named, token_file), **options)

    return _server()(_ledger(_token_file(read)))


def _one_of(server: str | None, state_dir: str | None) -> tuple[str | None, str | None]:
    """Return what flags name, else the environment, else the file of options; the daemon before the
    ledger. Raise UsageError if flags name both."""
    context = click.get_current_context()
    given = {"server": server, "state_dir": state_dir}
    for origin in (
        ParameterSource.COMMANDLINE,
        ParameterSource.ENVIRONMENT,
        ParameterSource.DEFAULT_MAP,
    ):
        named = {k: v for k, v in given.items() if context.get_parameter_source(k) is origin}
        if len(named) == 2 and origin is ParameterSource.COMMANDLINE:
            raise click.UsageError("--server and --state-dir are two sources: name one")
        if named:
            return named.get("server"), None if "server" in named else named["state_dir"]
    return None, None


def _open(server: str | None, state_dir: str | None, token_file: Path | None) -> Source:
    from costopt.source.daemon import DaemonSource
    from costopt.source.find import find_source
    from costopt.source.ledger import LedgerSource

    if server is not None:
        return DaemonSource(connect(server, token_file), server)
    if state_dir is not None:
        return LedgerSource(state_dir)
    source, note = find_source(DEFAULT_STATE_DIR)
    print_error("note", note)
    return source


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
