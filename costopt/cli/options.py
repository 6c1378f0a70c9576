"""Options that several commands share, callbacks that parse their values, and tables on stdout."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import CompletionItem

from costopt.domain.errors import CostoptError
from costopt.domain.market import Pool
from costopt.engine.settings import DEFAULT_COOLDOWN_S
from costopt.render.table import OutputFormat, Table
from costopt.spec.fields import missing_unit, parse_duration_s
from costopt.spec.moments import parse_instant

if TYPE_CHECKING:
    from costopt.planning.restriction import Restriction
    from costopt.planning.what_if import Capacity

Value = TypeVar("Value")
Command = TypeVar("Command", bound=Callable[..., object])

MAX_SPEED = 1e6
LIVE = "live"
"""Present offers of the account's clouds, in place of a market; as for --carbon."""
DAY_S = 86_400.0
MIN_INTERVAL_S = 60.0


class Number(click.FloatRange):
    """A number within bounds; click accepts nan as one."""

    def convert(
        self, value: float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number. Raise BadParameter for one outside the bounds, and for nan."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


class MarketFile(click.Path):
    """A market's file, the name of a bundled market, or with ``live`` that word."""

    def __init__(self, *, live: bool = False) -> None:
        super().__init__(dir_okay=False)
        self.live = live

    @property
    def names(self) -> tuple[str, ...]:
        """Return the words that are not files."""
        from costopt.market.history_file import BUNDLED_MARKETS

        return (*BUNDLED_MARKETS, LIVE) if self.live else BUNDLED_MARKETS

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        """Return the path. Raise BadParameter for a folder that is not a market's name."""
        if os.fspath(value) in self.names:
            return Path(value)
        return Path(os.fsdecode(super().convert(value, param, ctx)))


def instant(context: click.Context, option: click.Parameter, text: str | None) -> datetime | None:
    """Return a time in ISO 8601 with its zone as aware UTC."""
    return None if text is None else _parsed(parse_instant, context, option, text)


def duration_s(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Return a duration such as 90m or 1d 12h in seconds."""
    return None if text is None else _parsed(parse_duration_s, context, option, text)


def interval_s(context: click.Context, option: click.Parameter, text: str) -> float:
    """Return an interval of a minute or more in seconds."""
    seconds = _parsed(parse_duration_s, context, option, text)
    if seconds < MIN_INTERVAL_S:
        raise click.BadParameter(f"expected a minute or more, got {text!r}", context, option)
    return seconds


def interval_or_none_s(context: click.Context, option: click.Parameter, text: str) -> float | None:
    """Return an interval of a minute or more in seconds, None for none."""
    return None if text == "none" else interval_s(context, option, text)


def history_s(context: click.Context, option: click.Parameter, text: str) -> float:
    """Return a duration such as 14d in seconds, infinity for all, 0 for none."""
    named = {"all": math.inf, "none": 0.0}
    return named[text] if text in named else _parsed(parse_duration_s, context, option, text)


def durations_s(
    context: click.Context, option: click.Parameter, text: str | None
) -> tuple[float, ...] | None:
    """Return durations, separated by commas, in seconds."""
    if text is None:
        return None
    for part in words(text):
        if question := missing_unit(part):
            raise click.BadParameter(question, context, option)
    return tuple(_parsed(parse_duration_s, context, option, part) for part in words(text))


def pool(context: click.Context, option: click.Parameter, text: str | None) -> Pool | None:
    """provider/region/zone/instance_type/capacity_type."""
    return None if text is None else _parsed(Pool.parse, context, option, text)


def all_words(
    context: click.Context,  # noqa: ARG001 - click's signature
    option: click.Parameter,  # noqa: ARG001
    values: tuple[str, ...],
) -> tuple[str, ...]:
    """Return the words of an option that may be repeated, and hold several."""
    return tuple(dict.fromkeys(word for value in values for word in words(value)))


def gpus(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """Return GPUs in one word, checked against the catalogue."""
    from costopt.spec.gpu_text import check_gpus

    return None if text is None else _parsed(check_gpus, context, option, text)


def words(text: str) -> tuple[str, ...]:
    """Return words, separated by commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _parsed(
    parse: Callable[[str], Value], context: click.Context, option: click.Parameter, text: str
) -> Value:
    try:
        return parse(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}, got {text!r}", context, option) from None


def complete_file(
    context: click.Context,  # noqa: ARG001 - click's signature
    parameter: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[CompletionItem]:
    """Complete files, as the shell finds them."""
    return [CompletionItem(incomplete, type="file")]


def complete_policy(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete shipped policies, else files; after a comma the next one."""
    from costopt.spec import bundled_policies

    before, comma, begun = incomplete.rpartition(",")
    names = [name for name in bundled_policies() if name.startswith(begun)]
    items = [CompletionItem(before + comma + name) for name in names]
    return items or complete_file(context, parameter, incomplete)


def complete_market(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete bundled markets, and live where the parameter takes it, else files."""
    assert isinstance(parameter.type, MarketFile)
    names = parameter.type.names
    items = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return items or complete_file(context, parameter, incomplete)


def complete_gpu(
    context: click.Context,  # noqa: ARG001 - click's signature
    parameter: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[CompletionItem]:
    """Complete GPU models of the catalogue, without regard to case, and after their number."""
    from costopt.catalog import load_catalog

    models = sorted({machine.gpu.model for machine in load_catalog().instance_types()})
    count, times, begun = incomplete.rpartition("x")
    number = count + times if count.isdigit() else ""
    begun = begun.lower() if number else incomplete.lower()
    return [CompletionItem(number + model) for model in models if model.lower().startswith(begun)]


DEFAULT_STATE_DIR = Path(".costopt")

state_dir_option = click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_STATE_DIR,
    envvar="COSTOPT_STATE_DIR",
    show_envvar=True,
    metavar="FOLDER",
    help="Where runs keep their ledger and files.",
)
job_argument = click.argument("job", metavar="JOB.yaml", shell_complete=complete_file)
jobs_argument = click.argument(
    "jobs", nargs=-1, required=True, metavar="JOB.yaml|FOLDER...", shell_complete=complete_file
)
policy_option = click.option(
    "--policy",
    "-p",
    default="cheapest",
    shell_complete=complete_policy,
    envvar="COSTOPT_POLICY",
    show_envvar=True,
    metavar="NAME|FILE",
    help="A shipped policy or a policy file.",
)
account_option = click.option(
    "--account",
    shell_complete=complete_file,
    envvar="COSTOPT_ACCOUNT",
    show_envvar=True,
    metavar="FILE",
    help="The account file: providers, quotas, tenants, prices, store; default: none.",
)
speed_option = click.option(
    "--speed",
    type=Number(0.001, MAX_SPEED),
    default=1.0,
    help="Seconds of market time that pass in one second; a resumed run keeps its first speed.",
)
tick_option = click.option(
    "--tick", "tick_s", type=Number(1, DAY_S), default=60.0, help="Seconds between decisions."
)
notice_option = click.option(
    "--notice",
    "notice_s",
    type=Number(0, DAY_S),
    help="Interruption notice period, in seconds; default: that of each provider.",
)
cooldown_option = click.option(
    "--cooldown",
    "cooldown_s",
    type=Number(0, DAY_S),
    default=DEFAULT_COOLDOWN_S,
    help="Seconds for which a pool is avoided after it refused or interrupted a node.",
)
provider_option = click.option(
    "--provider",
    "providers",
    multiple=True,
    callback=all_words,
    metavar="NAME,…",
    help="Use only these providers, such as aws; default: all, of the account if it names some.",
)
region_option = click.option(
    "--region",
    "regions",
    multiple=True,
    callback=all_words,
    metavar="NAME,…",
    help="Use only these regions, such as us-east-1; default: all, of the account if it names "
    "some.",
)
gpus_option = click.option(
    "--gpus",
    callback=gpus,
    shell_complete=complete_gpu,
    metavar="8xH100",
    help="Use this GPU model, and this many GPUs in total, whatever the job file says.",
)
spot_option = click.option(
    "--spot/--on-demand",
    default=None,
    help="Use spot capacity only, or on-demand capacity only; default: as the policy says.",
)
_market = partial(
    click.option,
    "--market",
    shell_complete=complete_market,
    envvar="COSTOPT_MARKET",
    show_envvar=True,
)
market_option = _market(
    type=MarketFile(live=True),
    metavar="NAME|FILE|live",
    help="A market history, or sample, which costopt ships: its prices, and runs on its "
    "simulation; or live: what the account's clouds offer now. Default: list prices for plans, "
    "live for runs.",
)
record_option = _market(
    type=MarketFile(),
    metavar="NAME|FILE",
    help="A market history, or sample, which costopt ships; default: list prices.",
)
markets_option = _market(
    "markets",
    type=MarketFile(),
    multiple=True,
    required=True,
    metavar="NAME|FILE",
    help="A market history, or sample, which costopt ships.",
)
at_option = click.option(
    "--at",
    callback=instant,
    metavar="TIME",
    help="Begin at this time of the market; default: where spot and on-demand have prices.",
)
carbon_option = click.option(
    "--carbon",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="COSTOPT_CARBON",
    show_envvar=True,
    metavar="FILE|live",
    help="Hourly intensities, as costopt carbon import writes them; live: those of the service "
    "that the account file names; default: annual means, or live for the account's clouds where "
    "it names a service.",
)
WIDE = "costopt.wide"
"""Where the context of a command keeps --wide."""


def _store_wide(context: click.Context, option: click.Parameter, wide: bool) -> None:  # noqa: ARG001
    context.meta[WIDE] = wide


wide_option = click.option(
    "--wide",
    is_flag=True,
    expose_value=False,
    callback=_store_wide,
    envvar="COSTOPT_WIDE",
    show_envvar=True,
    help="Show all columns of a table, however wide; default: those that fit 100 characters.",
)
forecasts_option = click.option(
    "--forecasts", is_flag=True, help="Plan with price forecasts from the history so far (slower)."
)


max_age_option = click.option(
    "--max-age",
    "max_age_s",
    callback=duration_s,
    metavar="DURATION",
    help="Leave out list prices older than this; fail with 5 if all are. Default: leave out those "
    "older than 30d where newer ones exist.",
)


def check_price_source(
    market: Path | None, at: datetime | None, max_age_s: float | None = None
) -> None:
    """Raise UsageError for an instant without a history, or an age of list prices where there are
    none."""
    if max_age_s is not None and market is not None:
        raise click.UsageError(
            "--max-age is for price lists; with --market, limits.max_price_age in the policy counts"
        )
    if at is not None and is_live(market):
        raise click.UsageError("--at is of a record; --market live is of the present")
    if at is not None and market is None:
        raise click.UsageError("--at needs --market")


def restrict(
    providers: tuple[str, ...], regions: tuple[str, ...], spot: bool | None
) -> Restriction:
    """Return the pools to which the options restrict a command."""
    from costopt.planning.restriction import Restriction

    kinds: dict[bool | None, Capacity] = {None: "policy", True: "spot", False: "on_demand"}
    return Restriction(providers, regions, kinds[spot])


def is_live(market: Path | None) -> bool:
    """Return whether the account's clouds are asked for their offers."""
    return market == Path(LIVE)


def check_record(record: Path, refuse: type[CostoptError]) -> None:
    """Raise ``refuse`` unless ``record`` is a regular file, since a pipe may never be written."""
    if not record.exists():
        raise refuse(f"{record} does not exist", hint="check the path", code="missing")
    if not record.is_file():
        raise refuse(
            f"{record} is not a regular file",
            hint="save the record as a file first",
            code="not_a_file",
        )


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


def print_table(table: Table, output: str, page: Callable[[], str] | None = None) -> None:
    """Write the table to stdout, with all columns if the command has --wide.

    ``page`` makes its HTML document where that holds more than the table.
    """
    from costopt.render.writers import write_table

    if page is not None and output == OutputFormat.HTML:
        sys.stdout.write(page())
        return
    context = click.get_current_context(silent=True)
    wide = context is not None and bool(context.meta.get(WIDE))
    write_table(table, OutputFormat(output), sys.stdout, wide=wide)
