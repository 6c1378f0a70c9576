"""Whether an account's store can hold HEAD and claims of tasks, for `costopt doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from costopt.domain.account import Account
from costopt.domain.errors import CostoptError
from costopt.provider.base import Check, CheckStatus


def store_checks(account: Account) -> Iterator[Check]:
    """Yield a check for each property that the account's bucket lacks, or one that it lacks none.

    Of a folder there is nothing to check.
    """
    from costopt.store import open_store
    from costopt.store.guarantees import HINT, broken_guarantees, service_of

    if account.store is None:
        return
    try:
        store = open_store(account.store)
        if service_of(store) is None:
            return
        broken = broken_guarantees(store)
    except CostoptError as error:
        yield Check("store writes", CheckStatus.MISSING, error.message, error.hint)
        return
    for each in broken:
        yield Check(f"store: {each.name}", CheckStatus.BROKEN, each.observed, HINT)
    if not broken:
        done = "conditional writes, reads and lists after writes"
        yield Check("store writes", CheckStatus.OK, done)
