"""Options from a file: costopt.toml in the working folder, over ~/.config/costopt/config.toml.

A table has a command's name and holds its options: ``[plan]`` with ``policy = "balanced"``. An
option that may be given several times is a list: ``[market.generate]`` with ``gpu = ["T4",
"V100"]``. Keys outside tables apply to every command that has the option. Spending money is
confirmed on the command line only, so ``apply`` is rejected here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from costopt.domain.errors import SpecError

FILE_NAME = "costopt.toml"
SHARED = ("output", "policy", "market", "state_dir", "server", "token_file")
FLAG_ONLY = ("apply",)


@dataclass(frozen=True, slots=True)
class Config:
    """The values of the file at ``path``; ``path`` is None if there is no file."""

    path: Path | None
    values: Mapping[str, Any]


def read_config(named: str | None) -> tuple[Config, ...]:
    """Return the files that exist, the one with precedence last; only ``named`` if one is named.

    Raise SpecError for a file that cannot be read or is not TOML.
    """
    if named is not None:
        return (_read(Path(named)),)
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    places = (Path(base).expanduser() / "costopt" / "config.toml", Path(FILE_NAME))
    return tuple(_read(place) for place in places if place.is_file())


def defaults_for(name: str, command: click.Command, configs: tuple[Config, ...]) -> dict[str, Any]:
    """Return the defaults of one command's options. Raise SpecError for unknown keys."""
    defaults: dict[str, Any] = {}
    for config in configs:
        shared = {key: value for key, value in config.values.items() if not _is_table(value)}
        for key in shared:
            _check_key(config, "", key, SHARED)
        defaults |= _known(command, shared)
        defaults |= _table_defaults(config, name, command, config.values.get(name, {}))
    return defaults


def _read(path: Path) -> Config:
    import tomllib

    if path.exists() and not path.is_file():
        raise SpecError(f"{path}: is not a regular file", code="not_a_file")
    try:
        return Config(path, tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SpecError(f"{path}: cannot be read: {reason}", code="unreadable") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: is not TOML: {error}", code="not_toml") from None


def _table_defaults(
    config: Config, name: str, command: click.Command, table: Any
) -> dict[str, Any]:
    """Return the options of a command; the tables of a group's commands stay tables, as click
    expects."""
    if not _is_table(table):
        raise SpecError(f"{config.path}: {name} must be a table: [{name}]")
    options, inner = _options(command), _commands(command)
    if default := getattr(command, "default", None):
        own = {key: value for key, value in table.items() if not _is_table(value)}
        tables = {key: value for key, value in table.items() if _is_table(value)}
        table = tables | {default: own | tables.get(default, {})}
    for key in table:
        _check_key(config, name, key, (*options, *inner))
    named = {key.replace("-", "_"): value for key, value in table.items() if key not in inner}
    return {
        str(options[key].name): _listed(options[key], value) for key, value in named.items()
    } | {
        key: _table_defaults(config, f"{name}.{key}", inner[key], value)
        for key, value in table.items()
        if key in inner
    }


def _known(command: click.Command, shared: Mapping[str, Any]) -> dict[str, Any]:
    options = _options(command)
    plain = {key.replace("-", "_"): value for key, value in shared.items()}
    named = ((options[key], value) for key, value in plain.items() if key in options)
    return {str(option.name): _listed(option, value) for option, value in named} | {
        key: _known(inner, shared) for key, inner in _commands(command).items()
    }


def _commands(command: click.Command) -> Mapping[str, click.Command]:
    """Return the commands of a group, which may have options of its own."""
    if not isinstance(command, click.Group):
        return {}
    context = click.Context(command)
    found = {name: command.get_command(context, name) for name in command.list_commands(context)}
    return {name: each for name, each in found.items() if each is not None}


def _check_key(config: Config, table: str, key: str, known: tuple[str, ...]) -> None:
    from costopt.spec.fields import did_you_mean

    where = f"{config.path}: [{table}] {key}" if table else f"{config.path}: {key}"
    plain = key.replace("-", "_")
    if plain in FLAG_ONLY:
        raise SpecError(
            f"{where}: can be given on the command line only, since it spends money",
            code="command_line_only",
        )
    if plain not in known and key not in known:
        allowed = did_you_mean(plain, known) or f"; allowed: {', '.join(known)}"
        raise SpecError(f"{where}: unknown key{allowed}", code="unknown_key")


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return options by their long name, with underscores: ``--on-demand-price``."""
    return {
        word.removeprefix("--").replace("-", "_"): option
        for option in command.params
        if isinstance(option, click.Option)
        for word in option.opts
        if word.startswith("--")
    }


def _listed(option: click.Option, value: object) -> object:
    """Return one value of a repeatable option as a list of one."""
    return [value] if option.multiple and isinstance(value, str) else value


def _is_table(value: object) -> bool:
    return isinstance(value, dict)
