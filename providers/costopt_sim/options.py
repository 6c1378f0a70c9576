"""What ``connect`` is given, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from costopt.domain.errors import BadRequestError
from costopt.domain.history import MarketHistory
from costopt.domain.ports import Machines, ProviderOptions
from costopt.domain.transfer import TransferPrices

COMMON_KEYS = frozenset({"market", "machines", "mode", "notice_s", "transfers"})


class SimMode(StrEnum):
    """What a simulated node is."""

    VIRTUAL = "virtual"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class SimOptions:
    """The options of both modes; ``process`` holds what only process mode knows."""

    market: MarketHistory
    machines: Machines
    mode: SimMode
    notice_s: float
    transfers: TransferPrices | None
    process: Mapping[str, object]

    @classmethod
    def parse(cls, options: ProviderOptions) -> SimOptions:
        """Raises BadRequestError that names the option."""
        mode = _mode(options.get("mode", SimMode.VIRTUAL))
        others = {key: value for key, value in options.items() if key not in COMMON_KEYS}
        if others and mode is SimMode.VIRTUAL:
            raise BadRequestError(
                f"costopt_sim: unknown option {', '.join(sorted(others))}",
                hint=f"in virtual mode the options are {', '.join(sorted(COMMON_KEYS))}",
            )
        return cls(
            market=_market(options.get("market")),
            machines=_machines(options.get("machines")),
            mode=mode,
            notice_s=_notice_s(options.get("notice_s", 120.0)),
            transfers=_transfers(options.get("transfers")),
            process=others,
        )


def _mode(value: object) -> SimMode:
    try:
        return SimMode(str(value))
    except ValueError:
        raise BadRequestError(
            f"costopt_sim: mode {value!r} is unknown", hint='use "virtual" or "process"'
        ) from None


def _market(value: object) -> MarketHistory:
    if not isinstance(value, MarketHistory):
        raise BadRequestError(
            f"costopt_sim: option market must be a MarketHistory, not {type(value).__name__}",
            hint="read one with costopt.market.history_file.read_history",
        )
    return value


def _machines(value: object) -> Machines:
    if not callable(getattr(value, "machine", None)):
        raise BadRequestError(
            f"costopt_sim: option machines must answer machine(pool), not {type(value).__name__}",
            hint="pass the catalogue",
        )
    return cast("Machines", value)


def _transfers(value: object) -> TransferPrices | None:
    if value is not None and not callable(value):
        raise BadRequestError(
            f"costopt_sim: option transfers must be a function, not {type(value).__name__}",
            hint="pass the catalogue's transfer",
        )
    return cast("TransferPrices | None", value)


def _notice_s(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadRequestError(f"costopt_sim: notice_s must be a number, not {value!r}")
    if not math.isfinite(value) or value < 0:
        raise BadRequestError(f"costopt_sim: notice_s must be finite and not negative: {value}")
    return float(value)
