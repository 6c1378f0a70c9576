"""Commands that are imported when they are used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from costopt.cli.config import FLAG_ONLY
from costopt.cli.failure import exit_on_closed_pipe, run_command
from costopt.cli.settings import CliContext


class CommandEntry(NamedTuple):
    """Where a command is, and its one-line help, so that a list needs no import."""

    module: str
    attribute: str
    help: str


class LazyGroup(click.Group):
    """A group whose commands stay unimported until one is invoked."""

    def __init__(self, *args: Any, entries: Mapping[str, CommandEntry], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names in the order of use, not of the alphabet."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command. What spends money is taken from the command line alone."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry.module), entry.attribute)
        assert isinstance(command, click.Command)
        for option in command.params:
            if isinstance(option, click.Option) and option.name in FLAG_ONLY:
                option.allow_from_autoenv = False
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command named first, or a usage error with the nearest names."""
        if args and args[0] not in self.entries and not args[0].startswith("-"):
            from costopt.spec.nearest import did_you_mean

            near = did_you_mean(args[0], self.entries)
            ctx.fail(f"there is no command {args[0]!r}{near}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """The list of commands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.entries.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run; a reader that closed the pipe early is no error."""
        with exit_on_closed_pipe():
            return super().invoke(ctx)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run and, unless ``standalone_mode`` is False, tell errors our way and exit."""
        settings = extra.setdefault("obj", CliContext())

        def run() -> Any:
            return super(LazyGroup, self).main(
                args=args,
                prog_name=prog_name or "costopt",
                complete_var=complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )

        if not standalone_mode:
            return run()
        sys.exit(run_command(run, settings))
