"""A provider whose own defects cost that provider a call, and nothing else."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from costopt.domain.errors import CostoptError, ProviderError, ProviderUnavailableError
from costopt.domain.fleet import Node
from costopt.domain.market import Interruption, Offer
from costopt.domain.quota import Quota
from costopt.provider.base import (
    AccountChecks,
    BillSource,
    ChargeSource,
    Check,
    OrphanedResource,
    PartialFailures,
    PriceChange,
    PriceSeriesKey,
    PriceSource,
    Provider,
    QuotaSource,
    ResourceCleanup,
    TracksEndedNodes,
)

PORTS = (
    Provider, QuotaSource, BillSource, ChargeSource, PriceSource, PartialFailures, TracksEndedNodes,
    ResourceCleanup, AccountChecks,
)  # fmt: skip
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


def port_methods() -> tuple[str, ...]:
    """The methods of all provider ports, ``names`` excepted, which is a constant."""
    found = (name for port in PORTS for name, it in vars(port).items() if callable(it))
    return tuple(dict.fromkeys(name for name in found if not name.startswith("_")))


def isolate(raw: Provider) -> Provider:
    """``raw`` with the same ports and attributes, whose methods raise ProviderError only.

    Any other exception of its code, or an answer of another type than the port promises, is raised
    as ProviderUnavailableError that names the provider, the method and the line: after a defect
    the outcome is as unknown as after no answer.
    """
    methods = {name: _method(name) for name in port_methods() if hasattr(raw, name)}
    kind: type[_Isolated] = type("IsolatedProvider", (_Isolated,), methods)
    return cast("Provider", kind(raw))


class _Isolated:
    def __init__(self, raw: Provider) -> None:
        self._raw = raw
        self.names = frozenset(raw.names)

    def __getattr__(self, name: str) -> Any:
        """What a provider has beyond its ports."""
        return getattr(self._raw, name)


def _method(name: str) -> Callable[..., Any]:
    items = ITEMS.get(name)

    def call(self: _Isolated, *args: Any, **kwargs: Any) -> Any:
        try:
            answer = getattr(self._raw, name)(*args, **kwargs)
            return answer if items is None else _sequence(answer, items)
        except ProviderError:
            raise
        except Exception as error:
            raise _failure("+".join(sorted(self.names)), name, error) from error

    call.__name__ = name
    return call


def _sequence(answer: Iterable[Any], items: type) -> tuple[Any, ...]:
    found = tuple(answer)
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
