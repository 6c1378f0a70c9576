"""Appends of a daemon that does not lead any more."""

from __future__ import annotations

from costopt.domain.errors import LeadershipLostError


def check_fencing_token(what: str, ours: int | None, theirs: int, holder: str) -> None:
    """Raise LeadershipLostError where the ledger's fence has grown beyond ours."""
    if ours is None or theirs == ours:
        return
    raise LeadershipLostError(
        f"{what}: {holder or 'another daemon'} leads under fence {theirs}, ours was {ours}",
        hint="nothing was written; this daemon stands by until the other one is gone",
    )
