"""The same question to many regions at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from costopt.domain.errors import ProviderError

K = TypeVar("K")
V = TypeVar("V")

MAX_CONCURRENCY = 8
"""Calls in flight: clouds count them by account, so few are enough."""


def fan_out(
    keys: Iterable[K], ask: Callable[[K], V], at_a_time: int = MAX_CONCURRENCY
) -> dict[K, V | ProviderError]:
    """The answer for each key, in the order of ``keys``; one that fails stops no other."""
    asked = tuple(dict.fromkeys(keys))
    if len(asked) <= 1:
        return {key: _answer(ask, key) for key in asked}
    with ThreadPoolExecutor(min(at_a_time, len(asked)), thread_name_prefix="cloud") as pool:
        return dict(zip(asked, pool.map(lambda key: _answer(ask, key), asked), strict=True))


def fan_out_or_raise(keys: Iterable[K], ask: Callable[[K], V]) -> dict[K, V | ProviderError]:
    """As ``fan_out``. Raises the first ProviderError where no key has an answer."""
    answers = fan_out(keys, ask)
    errors = [answer for answer in answers.values() if isinstance(answer, ProviderError)]
    if errors and len(errors) == len(answers):
        raise errors[0]
    return answers


def _answer(ask: Callable[[K], V], key: K) -> V | ProviderError:
    try:
        return ask(key)
    except ProviderError as error:
        return error
