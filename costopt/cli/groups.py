"""Groups of commands that are imported on use, and errors for names that a group does not have."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from costopt.cli.config import FLAG_ONLY
from costopt.cli.errors import CliContext, exit_on_closed_pipe, run_command

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class CommandEntry(NamedTuple):
    """A command's module, and its one-line help, so that a list needs no import."""

    module: str
    attribute: str
    help: str


class LazyGroup(click.Group):
    """A group whose commands stay unimported until one is invoked.

    ``sections`` are the commands by the heading under which the help lists them. ``moved`` maps
    the names of commands that are gone to what stands in their place. ``default`` is the command
    that runs where none is named.
    """

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Mapping[str, CommandEntry]],
        moved: Mapping[str, str] | None = None,
        default: str | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self.sections = sections
        self.entries = {name: entry for each in sections.values() for name, entry in each.items()}
        self.moved = moved or {}
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, those of the default command if none is named."""
        unnamed = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        # A shell that completes the word after the group's name wants the names of its commands.
        if self.default is not None and unnamed and (args or not ctx.resilient_parsing):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands and options, also those of the default command."""
        found = super().shell_complete(ctx, incomplete)
        command = self.get_command(ctx, self.default or "")
        if command is not None and incomplete.startswith("-"):
            found += command.shell_complete(click.Context(command, ctx), incomplete)
        return found

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of use, not of the alphabet."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command. Options that spend money are taken from the command line alone."""
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
        """Return the command named first. Raise UsageError with the nearest names, or with the
        command that took its place."""
        name = args[0] if args else ""
        if name in self.moved:
            ctx.fail(f"there is no command {name!r}: use costopt {self.moved[name]}")
        if name and name not in self.entries and not name.startswith("-"):
            from costopt.spec.fields import did_you_mean

            near = did_you_mean(name, self.entries)
            ctx.fail(f"there is no command {name!r}{near}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the commands under their headings, from the table alone."""
        width = max(map(len, self.entries))
        for heading, entries in self.sections.items():
            with formatter.section(heading):
                rows = [(name.ljust(width), entry.help) for name, entry in entries.items()]
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run; a reader that closed the pipe early is not an error."""
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
        """Run and, unless ``standalone_mode`` is False, print errors in costopt's form and exit."""
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
