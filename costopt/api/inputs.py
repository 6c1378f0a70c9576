"""What the functions of the API take: files, markets, and the checks of arguments.

A SpecError names a bad argument and what to pass. Checked parameters are of type object, as callers
without a type checker pass anything.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from costopt.domain.account import UNLIMITED, Account
from costopt.domain.errors import SpecError
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.policy import Policy

if TYPE_CHECKING:
    from pandas import DataFrame

    from costopt.market.statistics import PoolStatistics

StrPath = str | os.PathLike[str]
JobSource = Job | str | os.PathLike[str] | Mapping[str, object]
"""A job, the path of its file, its text in YAML, or its fields."""
Span = str | float | timedelta
"""A duration, such as "13h", in seconds, or a timedelta."""
Choice = TypeVar("Choice", bound=str)

BAD_ARGUMENT = "bad_argument"


def load_job(
    source: StrPath | Mapping[str, object],
    *,
    now: datetime | None = None,
    account: Account | None = None,
    gpus: str | None = None,
) -> Job:
    """Return the job of a YAML file, of a text of several lines in YAML, or of a mapping with the
    fields of a file.

    ``gpus``, such as 8xH100, stands for what the file says of GPU models and their number.
    ``now`` is the start where the file names none, and the instant before which no deadline may
    lie: the present by default, for a recorded market an instant of the record. Where ``account``
    names tenants, the job must be one of theirs. Of a job with a schedule it is the next
    occurrence. Raise SpecError with every problem of the file and its line.
    """
    from costopt import spec
    from costopt.spec.job_source import job_document

    if not isinstance(source, str | os.PathLike | Mapping):
        raise bad_argument("source", f"is {_type(source)}", JOB_HINT)
    begin_at = check_instant("now", now) or datetime.now(UTC)
    document = job_document(source)
    return spec.parse_planned_job(document, begin_at, account or UNLIMITED, check_gpus(gpus))


def load_policy(name_or_path: StrPath) -> Policy:
    """Return the shipped policy of that name, or the policy of a YAML file.

    Raise SpecError for an unknown name, with every problem of the file and its line, and for a
    strategy that does not exist or cannot keep the policy's limits.
    """
    return check_policy(name_or_path)


def load_account(path: StrPath) -> Account:
    """Return the account of a YAML file. Raise SpecError with every problem and its line."""
    from costopt import spec

    return spec.load_account(path)


@dataclass(frozen=True, slots=True, repr=False)
class Market:
    """A recorded or generated market: prices and capacity of pools over time.

    ``path`` is the file that it was read from, None for one that was made in memory.
    """

    history: MarketHistory
    path: Path | None = None

    @property
    def name(self) -> str:
        """Return the market's name."""
        return self.history.name

    @property
    def starts_at(self) -> datetime:
        """Return the first instant at which every pool is recorded."""
        return self.history.starts_at

    @property
    def ends_at(self) -> datetime:
        """Return the instant after which no pool is recorded."""
        return self.history.ends_at

    @property
    def first_priced_at(self) -> datetime:
        """Return the first instant at which every capacity type has a price: the default of
        plans."""
        return self.history.first_priced_at

    def statistics(self) -> Mapping[Pool, PoolStatistics]:
        """Return coverage, availability, hazard and prices of each pool over the whole record."""
        from costopt.market.statistics import history_statistics

        return history_statistics(self.history)

    def to_frame(self) -> DataFrame:
        """Return one row per pool and stretch between changes: pool, starts_at, ends_at,
        nodes_available and price_usd_per_hour, as in the file.

        Raise MissingExtraError without pandas.
        """
        from costopt.frames import columns_frame
        from costopt.market.history_file import columns_of

        return columns_frame(columns_of(self.history))

    def __repr__(self) -> str:
        pools = len(self.history.pools)
        return f"Market({self.name!r}, {pools} pools, {self.starts_at} to {self.ends_at})"


def read_market(path: StrPath) -> Market:
    """Return the market of a file that ``costopt market`` wrote.

    Raise MarketError that names the file and, for a value, its row and column.
    """
    from costopt.market.history_file import read_history

    return Market(read_history(Path(path)), Path(path))


def bad_argument(name: str, problem: str, hint: str) -> SpecError:
    """Return the error of an argument: ``problem`` continues a sentence that begins with it."""
    return SpecError(f"{name} {problem}", hint=hint, code=BAD_ARGUMENT, subject=name)


JOB_HINT = "pass a Job, the path of a job file, or a mapping of its fields"


def check_job(job: object, now: datetime, account: Account, gpus: str | None = None) -> Job:
    """Return the job, loaded if it is not one; it begins ``now`` where it names no start.

    ``gpus`` are as for ``load_job``, and for a job that is yet to be loaded.

    Raise SpecError for anything else, with every problem of its fields, and for a job of a tenant
    that the account does not name: no tenant's limit would bind it.
    """
    if isinstance(job, str | os.PathLike | Mapping):
        return load_job(job, now=now, account=account, gpus=gpus)
    if not isinstance(job, Job):
        raise bad_argument("job", f"is {_type(job)}", JOB_HINT)
    if gpus is not None:
        hint = "pass the path of its file, or costopt.load_job(path, gpus=…)"
        raise bad_argument("gpus", "stand for what a job file says, and the job is loaded", hint)
    names = sorted(account.tenants)
    if names and job.tenant not in names:
        hint = f"name one of {', '.join(names)} as tenant in the job file"
        raise bad_argument("job", f"{job.name!r} is of no tenant of the account", hint)
    return job


def check_account(account: object) -> Account:
    """Return the account, loaded if it is the path of its file, an unlimited one for None.

    Raise SpecError for anything else, and with every problem of the file.
    """
    if account is None:
        return UNLIMITED
    if isinstance(account, str | os.PathLike):
        return load_account(account)
    if not isinstance(account, Account):
        raise bad_argument("account", f"is {_type(account)}", "pass an Account, or its file's path")
    return account


def check_market(name: str, market: object) -> Market:
    """Return the market, read if it is the name of a bundled market or a path. Raise SpecError for
    anything else, MarketError for a file that cannot be read."""
    if isinstance(market, str | os.PathLike):
        return read_market(market)
    if not isinstance(market, Market):
        hint = "pass a Market, the path of its file or the name of a bundled market: 'sample'"
        raise bad_argument(name, f"is {_type(market)}", hint)
    return market


def check_markets(markets: object) -> tuple[Market, ...]:
    """Return the markets; one alone need not be in a list. Raise SpecError for none."""
    found = tuple(check_market("markets", each) for each in as_tuple(markets))
    if not found:
        raise bad_argument("markets", "is empty", "read one: costopt.read_market(path)")
    return found


def check_policy(policy: object) -> Policy:
    """Return the policy, loaded if it is a name or path. Raise SpecError if it cannot be used."""
    from costopt.planning.request import check_policy, load_checked_policy

    if isinstance(policy, Policy):
        return check_policy(f"policy {policy.name}", policy)
    if isinstance(policy, str | os.PathLike):
        return load_checked_policy(os.fspath(policy))
    hint = "pass the name of a shipped policy, the path of a policy file or a Policy"
    raise bad_argument("policy", f"is {_type(policy)}", hint)


def check_policies(policies: object) -> tuple[Policy, ...]:
    """Return the policies, loaded where they are names or paths; one alone need not be in a list.

    Raise SpecError for none, and for one that cannot be used.
    """
    found = tuple(map(check_policy, as_tuple(policies)))
    if not found:
        raise bad_argument("policies", "is empty", "name a policy, such as 'cheapest'")
    return found


def as_tuple(values: object) -> tuple[object, ...]:
    """Return the values of a list; one alone, such as a text, counts as a list of one."""
    if isinstance(values, str | os.PathLike | Mapping) or not isinstance(values, Iterable):
        return (values,)
    return tuple(values)


def check_instant(name: str, at: object) -> datetime | None:
    """Return the instant in UTC. Raise SpecError without a time zone."""
    if at is None:
        return None
    if not isinstance(at, datetime):
        raise bad_argument(name, f"is {_type(at)}", "pass a datetime with its time zone")
    if at.utcoffset() is None:
        hint = f"say which, as in datetime({at.year}, {at.month}, {at.day}, tzinfo=UTC)"
        raise bad_argument(name, f"has no time zone: {at.isoformat()}", hint)
    return at.astimezone(UTC)


def check_gpus(gpus: object) -> str | None:
    """Return GPUs in one word. Raise SpecError for any other."""
    from costopt.spec import gpu_text

    if gpus is None:
        return None
    try:
        return gpu_text.check_gpus(gpus if isinstance(gpus, str) else "")
    except ValueError as error:
        raise bad_argument("gpus", f"is {gpus!r}: {error}", "pass 'H100' or '8xH100'") from None


def check_number(name: str, value: object, *, low: float = 0.0, open_end: bool = False) -> float:
    """Return the number. Raise SpecError below ``low``, for NaN and, unless ``open_end``, for
    infinity."""
    if not isinstance(value, bool) and isinstance(value, Real):
        number = float(value)
        if number >= low and (open_end or math.isfinite(number)):
            return number
    raise bad_argument(name, f"is {value!r}", f"pass a number, {low:g} or more")


def check_count(name: str, value: object, *, low: int, high: int | None = None) -> int:
    """Return the whole number. Raise SpecError for any other value, below low and above high."""
    if not isinstance(value, bool) and isinstance(value, Integral):
        count = int(value)
        if count >= low and (high is None or count <= high):
            return count
    allowed = f"{low} or more" if high is None else f"from {low} to {high}"
    raise bad_argument(name, f"is {value!r}", f"pass a whole number, {allowed}")


def check_spans_s(name: str, values: object, *, low: float = 0.0) -> tuple[float, ...]:
    """Return durations in seconds; one alone need not be in a list.

    Raise SpecError for other values, and for a duration below ``low``.
    """
    return tuple(_span_s(name, value, low) for value in as_tuple(values))


def _span_s(name: str, value: object, low: float) -> float:
    from costopt.spec.fields import parse_duration_s

    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, str):
        try:
            value = parse_duration_s(value)
        except ValueError as error:
            problem = f"has {value!r}: {error}"
            raise bad_argument(name, problem, "pass durations such as '13h', or seconds") from None
    return check_number(name, value, low=low)


def check_path(name: str, path: object) -> str:
    """Return a path or URL as text. Raise SpecError for any other type."""
    if not isinstance(path, str | os.PathLike):
        raise bad_argument(name, f"is {_type(path)}", "pass a path")
    return os.fspath(path)


def check_words(name: str, words: object) -> tuple[str, ...]:
    """Return names; one alone need not be in a list. Raise SpecError for any other type."""
    found = []
    for each in as_tuple(words):
        if not isinstance(each, str):
            raise bad_argument(name, f"holds {each!r}", "pass names")
        found.append(each)
    return tuple(found)


def check_choice(name: str, value: str, choices: Iterable[Choice]) -> Choice:
    """Return the choice of this text. Raise SpecError if it is none of them."""
    known = tuple(choices)
    for choice in known:
        if choice == value:
            return choice
    raise bad_argument(name, f"is {value!r}", f"use one of {', '.join(known)}")


def _type(value: object) -> str:
    return f"of type {type(value).__name__}"
