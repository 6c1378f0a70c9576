"""The prices, account and notes that plans of the API rest on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from costopt.api.inputs import (
    Market,
    StrPath,
    bad_argument,
    check_account,
    check_choice,
    check_gpus,
    check_instant,
    check_job,
    check_market,
    check_number,
    check_words,
)
from costopt.domain.account import Account
from costopt.domain.errors import CostoptError
from costopt.domain.job import Job
from costopt.domain.policy import Policy
from costopt.planning.account_bill import term_notes
from costopt.planning.quotes import QuoteSet, account_quotes, resolve_quotes, with_carbon
from costopt.planning.request import carbon_notes
from costopt.planning.restriction import Restriction
from costopt.planning.transfer_times import size_questions
from costopt.planning.what_if import POLICY_TERMS, TERMS, Capacity


@dataclass(frozen=True, slots=True)
class PricedInputs:
    """Prices and account of a plan, with what there is to say of them.

    ``policies`` are those that were asked for, with limits as narrow as the restriction.
    """

    jobs: tuple[Job, ...]
    policies: tuple[Policy, ...]
    seen: QuoteSet
    account: Account
    notes: tuple[str, ...]


def read_inputs(
    jobs: Sequence[object],
    policies: Sequence[Policy],
    market: Market | StrPath | None,
    account: Account | StrPath | None,
    at: datetime | None,
    carbon: StrPath | None,
    max_age_s: float | None,
    restriction: Restriction,
) -> PricedInputs:
    """Return prices and account of a plan of these jobs. Raise SpecError for a bad argument, and
    MarketError, SignalError or ProviderError where an input cannot be read."""
    when, live = check_instant("at", at), market == "live"
    history = None if market is None or live else check_market("market", market).history
    begin_at = when or (datetime.now(UTC) if history is None else history.first_priced_at)
    shared = check_account(account)
    tasks = tuple(check_job(job, begin_at, shared, restriction.gpus) for job in jobs)
    if live and when is not None:
        raise bad_argument("at", "is of a record", "leave it out: market='live' is of the present")
    if max_age_s is not None:
        check_number("max_age_s", max_age_s)
        if market is not None:
            hint = "leave it out: limits.max_price_age of the policy counts"
            raise bad_argument("max_age_s", "is for price lists", hint)
    restriction.check_names(shared, history)
    policies = tuple(restriction.apply(policy) for policy in policies)
    recorded = None if carbon is None else Path(carbon)
    if live:
        seen = with_carbon(account_quotes(shared, restriction.providers), recorded, shared)
    else:
        seen = resolve_quotes(history, when, recorded, shared, max_age_s)
    until = max(task.until_at for task in tasks)
    of_carbon = (note for each in policies for note in carbon_notes(seen, each, until))
    of_sizes = (note for task in tasks for note in size_questions(task, seen.now))
    notes = (*of_sizes, *seen.notes, seen.origin, *term_notes(seen, shared), *of_carbon)
    return PricedInputs(tasks, policies, seen, shared, tuple(dict.fromkeys(notes)))


def check_restriction(
    provider: str | Sequence[str],
    region: str | Sequence[str],
    gpus: str | None,
    capacity: Capacity = POLICY_TERMS,
) -> Restriction:
    """Return the pools to which these arguments restrict a plan. Raise SpecError for another
    type, and for unknown GPUs or an unknown capacity."""
    return Restriction(
        check_words("provider", provider),
        check_words("region", region),
        check_choice("capacity", capacity, TERMS),
        check_gpus(gpus),
    )


@contextmanager
def noted(notes: Iterable[str]) -> Iterator[None]:
    """Attach the notes on prices to errors, as a cause may be among them."""
    try:
        yield
    except CostoptError as error:
        for note in notes:
            error.add_note(note)
        raise
