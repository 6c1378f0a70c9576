"""What a misspelt word was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable

SHORT_WORD_LENGTH = 3
"""In words up to this length one wrong letter is a large part."""


def close_matches(word: str, known: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """The known words that look most like ``word``, best first, in any case of letters."""
    from difflib import get_close_matches

    originals = {name.lower(): name for name in known}
    cutoff = 0.5 if len(word) <= SHORT_WORD_LENGTH else 0.6
    matches = get_close_matches(word.lower()[:80], originals, n=count, cutoff=cutoff)
    return tuple(originals[match] for match in matches)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?", or nothing where no known word is near."""
    matches = close_matches(word, known)
    if not matches:
        return ""
    return f"; did you mean {' or '.join(repr(match) for match in matches)}?"
