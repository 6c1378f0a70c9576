"""The page of the commands, from their help."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from costopt.cli.main import cli

Entry = tuple[str, click.Command]
HEAD = """\
# Commands

Data go to stdout, messages to stderr. `--output json` and `csv` are for programs: json carries
the name and version of its form in `schema`. Flags win over environment variables, these over
`costopt.toml` (in the working folder, over `~/.config/costopt/config.toml`).

| Exit code | Meaning |
|---|---|
| 0 | done |
| 1 | error |
| 2 | wrong usage, or a wrong job or policy file |
| 3 | infeasible: no plan keeps the deadline |
| 4 | a guard tripped: a budget or a limit |
| 5 | stale data: every price is too old |
| 130 | interrupted |

## Shell completion

Commands, options, policies, GPU models and files are completed, once the shell has read the code
that `costopt completion` prints:

| Shell | Once, or in the file that the shell reads at its start |
|---|---|
| bash 4.4 or newer | `eval "$(costopt completion bash)"` in `~/.bashrc` |
| zsh | `eval "$(costopt completion zsh)"` in `~/.zshrc`, after `compinit` |
| fish | `costopt completion fish > ~/.config/fish/completions/costopt.fish`, once |
"""


def commands_page() -> str:
    """Return the whole page."""
    sections = [HEAD]
    for path, command in commands():
        sections.append(_section(path, command))
    return "\n".join(sections)


def commands(path: str = "costopt", command: click.Command = cli) -> Iterator[Entry]:
    """Yield every command with its path, such as ``costopt market show``."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(f"{path} {name}", inner)


def env_prefix(path: str, command: click.Command) -> str:
    """Return what the environment variables of a command's options begin with."""
    named = command.context_settings.get("auto_envvar_prefix")
    return str(named or path.upper().replace(" ", "_").replace("-", "_"))


def _section(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path, auto_envvar_prefix=env_prefix(path, command))
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    lines = [f"## {path}", "", f"`{usage}`", "", text, ""]
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    if options:
        lines += ["| Option | Meaning | Default | Environment |", "|---|---|---|---|"]
        lines += [_option_row(option, context) for option in options]
        lines.append("")
    return "\n".join(lines)


def _option_row(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    if not option.is_flag:
        names += f" {_metavar(option)}"
    default = option.get_default(context, call=False)
    default_text = (
        "required" if option.required else "" if _says_nothing(default) else f"`{default}`"
    )
    variable = f"`{option.envvar or f'{context.auto_envvar_prefix}_{option.name}'.upper()}`"
    if option.name == "version" or not option.allow_from_autoenv:
        variable = ""
    return f"| {names} | {option.help or ''} | {default_text} | {variable} |"


def _metavar(option: click.Option) -> str:
    """Return the option's value in our words, since click's differ between its versions."""
    if isinstance(option.type, click.Choice):
        return "\\|".join(option.type.choices)
    return option.metavar or option.type.name.removesuffix(" range").upper()


def _says_nothing(default: object) -> bool:
    return not isinstance(default, str | int | float) or default is False
