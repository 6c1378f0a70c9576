"""A provider whose own defects fail only its own calls."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

from costopt.domain.account import Quota
from costopt.domain.errors import CostoptError, ProviderError, ProviderUnavailableError
from costopt.domain.fleet import Node
from costopt.domain.market import Interruption, Offer
from costopt.provider.base import Check, OrphanedResource, PriceChange, PriceSeriesKey
from costopt.provider.wrapper import ProviderWrapper

ITEMS: dict[str, type] = {
    "offers": Offer,
    "launch": Node,
    "nodes": Node,
    "notices": Interruption,
    "quotas": Quota,
    "checks": Check,
    "orphaned_resources": OrphanedResource,
    "price_series": PriceSeriesKey,
    "price_changes": PriceChange,
}
"""What the sequences hold that these methods return; one that is made as it is read may raise."""


MAX_TEXT = 300

T = TypeVar("T")


class IsolatedProvider(ProviderWrapper):
    """A provider whose methods raise ProviderError only.

    Any other exception of its code, or an answer of another type than ``Provider`` promises, is
    raised as ProviderUnavailableError that names the provider, the method and the line: after a
    defect the outcome is as unknown as after no answer.
    """

    def _call(self, method: str, call: Callable[[], T]) -> T:
        items = ITEMS.get(method)
        try:
            found = call()
            return found if items is None else cast("T", _sequence(cast("Any", found), items))
        except ProviderError:
            raise
        except Exception as error:
            raise _failure("+".join(sorted(self.names)), method, error) from error


def _sequence(values: Iterable[Any], items: type) -> tuple[Any, ...]:
    found = tuple(values)
    for item in found:
        if not isinstance(item, items):
            raise TypeError(f"expected {items.__name__}, got {type(item).__name__}")
    return found


def _failure(provider: str, method: str, error: Exception) -> ProviderUnavailableError:
    if isinstance(error, CostoptError):
        return ProviderUnavailableError(f"{provider}: {error.message}", hint=error.hint)
    return ProviderUnavailableError(
        f"{provider} failed in {method} ({_line(error)}): {_text(error)}",
        hint="this is a defect of the adapter; report it with this line",
    )


def _line(error: Exception) -> str:
    """Where it was raised, such as "notices.py:84"."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{Path(frame.f_code.co_filename).name}:{line}"


def _text(error: Exception) -> str:
    """Its class and message in one line that can be stored and shown, whatever it holds."""
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    return "".join(each if each.isprintable() else "?" for each in text[:MAX_TEXT])
