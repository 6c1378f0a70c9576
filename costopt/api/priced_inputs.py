"""The prices, account and notes that plans of the API rest on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from costopt.api.inputs import (
    Market,
    StrPath,
    bad_argument,
    check_account,
    check_instant,
    check_job,
    check_market,
    check_number,
    check_words,
)
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.errors import CostoptError
from costopt.domain.policy import Policy
from costopt.planning.account_bill import term_notes
from costopt.planning.quotes import QuoteSet, resolve_quotes
from costopt.planning.request import carbon_notes
from costopt.planning.transfer_times import size_questions


@dataclass(frozen=True, slots=True)
class PricedInputs:
    """Prices and account of a plan, with what there is to say of them."""

    seen: QuoteSet
    account: Account
    notes: tuple[str, ...]


def read_inputs(
    jobs: Sequence[object],
    policies: Sequence[Policy],
    market: Market | None,
    account: Account | None,
    providers: Sequence[str],
    at: datetime | None,
    carbon: StrPath | None,
    max_age_s: float | None,
) -> PricedInputs:
    """Return prices and account of a plan of these jobs. Raise SpecError for a bad argument, and
    MarketError, SignalError or ProviderError where an input cannot be read."""
    tasks = tuple(check_job(job) for job in jobs)
    shared = UNLIMITED
    for task in tasks:
        shared = check_account(account, task)
    names, when = check_words("providers", providers), check_instant("at", at)
    history = None if market is None else check_market("market", market).history
    if names and (history is not None or when is not None):
        hint = "leave out market and at: providers are asked for their present offers"
        raise bad_argument("providers", "are a source of prices of their own", hint)
    if max_age_s is not None:
        check_number("max_age_s", max_age_s)
        if names or history is not None:
            hint = "leave it out: limits.max_price_age of the policy counts"
            raise bad_argument("max_age_s", "is for price lists", hint)
    recorded = None if carbon is None else Path(carbon)
    seen = resolve_quotes(history, when, recorded, shared, names, max_age_s)
    until = max(task.until_at for task in tasks)
    of_carbon = (note for each in policies for note in carbon_notes(seen, each, until))
    of_sizes = (note for task in tasks for note in size_questions(task, seen.now))
    notes = (*of_sizes, *seen.notes, seen.origin, *term_notes(seen, shared), *of_carbon)
    return PricedInputs(seen, shared, tuple(dict.fromkeys(notes)))


@contextmanager
def noted(notes: Iterable[str]) -> Iterator[None]:
    """Attach the notes on prices to errors, as a cause may be among them."""
    try:
        yield
    except CostoptError as error:
        for note in notes:
            error.add_note(note)
        raise
