"""Whether an account's store can hold HEAD and claims of tasks, for `costopt doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from costopt.domain.account import Account
from costopt.domain.errors import CostoptError
from costopt.provider.base import Check, CheckStatus


def store_checks(account: Account) -> Iterator[Check]:
    """Yield a check for each property that the account's store lacks, or one that it lacks none."""
    from costopt.store import open_store
    from costopt.store.guarantees import HINT, broken_guarantees

    if account.store is None:
        return
    try:
        broken = broken_guarantees(open_store(account.store))
    except CostoptError as error:
        yield Check("store writes", CheckStatus.MISSING, error.message, error.hint)
        return
    for each in broken:
        yield Check(f"store: {each.name}", CheckStatus.BROKEN, each.observed, HINT)
    if not broken:
        done = "conditional writes, reads and lists after writes"
        yield Check("store writes", CheckStatus.OK, done)
