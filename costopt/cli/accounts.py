"""Account files as commands name them."""

from __future__ import annotations

from costopt.domain.account import UNLIMITED, Account


def load_account(path: str | None) -> Account:
    """The account in that file, an unlimited one where none is named. Raises SpecFileError."""
    if path is None:
        return UNLIMITED
    from costopt.spec import load_account

    return load_account(path)
