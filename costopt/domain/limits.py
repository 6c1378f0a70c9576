"""The limits table: for each limit its unit, its scope, what a node adds and how it is worded."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum, StrEnum
from typing import Any

from costopt.domain.declared import described
from costopt.domain.market import InstanceType

ROUNDING = 1e-9
"""Sums of floats may exceed a limit by this much."""


def _one(_: InstanceType) -> float:
    return 1.0


def _gpus(machine: InstanceType) -> float:
    return float(machine.gpu_count)


def _vcpus(machine: InstanceType) -> float:
    return float(machine.vcpus)


class Resource(Enum):
    """Something of which nodes hold an amount for as long as they live.

    ``per_machine`` returns the amount of one node; None where that depends on more than its
    instance type: dollars per hour on the price, kilowatts at the meter on the power cap. What a
    node uses of a commitment is up to the quota, ``Quota.node_load``.
    A gang or the fleet ``verb`` an amount: "has 8 GPUs". A limit on it is a field ``max_KEY``.
    """

    NODES = ("nodes", "nodes", _one)
    GPUS = ("gpus", "GPUs", _gpus)
    VCPUS = ("vcpus", "vCPUs", _vcpus)
    KW = ("kw", "kW", None, "draws")
    USD_PER_HOUR = ("usd_per_hour", "$/h", None, "costs")
    COMMITTED = ("committed", "committed", _one, "uses")

    def __init__(
        self,
        key: str,
        unit: str,
        per_machine: Callable[[InstanceType], float] | None,
        verb: str = "has",
    ) -> None:
        self.key, self.unit, self.per_machine, self.verb = key, unit, per_machine, verb

    @property
    def field(self) -> str:
        """The name of a policy's, a quota's, a tenant's or the account's limit on it."""
        return f"max_{self.key}"

    def text(self, amount: float) -> str:
        """Return the amount with its unit."""
        return f"{amount:.6g} {self.unit}"

    def node_load(self, machine: InstanceType | None) -> float:
        """Return the amount of one node; ∞ for a machine that the catalog does not hold.

        Only for a resource with ``per_machine``.
        """
        assert self.per_machine is not None
        if self is Resource.NODES:
            return 1.0
        return math.inf if machine is None else self.per_machine(machine)

    def limit_of(self, holder: object) -> float | None:
        """Return ``holder``'s maximum of this resource; None where it sets none."""
        most: float | None = getattr(holder, self.field, None)
        return most


class LimitUnit(StrEnum):
    """How a limit's value is written in files and shown on pages."""

    USD = "USD"
    NUMBER = "number"
    KW = "kW"
    SECONDS = "s"
    RATIO = "ratio"
    SHARE = "share"
    FLAG = "flag"
    NAMES = "names"
    CAPACITY_TYPES = "capacity types"


class LimitScope(StrEnum):
    """Over what a limit holds, and so which code enforces it.

    ``CONCURRENT``: all nodes of the policy's jobs at a time; ``JOB``: the dollars of one job in
    total; ``MONTH``: the dollars of a calendar month (UTC); ``LAUNCHES``: nodes launched within
    any hour; ``PRICE``: the price of a pool; ``GANG``: the shape of a gang; ``POOL``: which pools
    may be used.
    """

    CONCURRENT = "concurrent"
    JOB = "job"
    MONTH = "month"
    LAUNCHES = "launches"
    PRICE = "price"
    GANG = "gang"
    POOL = "pool"


@dataclass(frozen=True, slots=True)
class LimitSpec:
    """A row of the table: the limit ``field``, called ``key`` in files and ``label`` on pages.

    ``help`` describes it in the policy file's schema. Limits of concurrent use have the
    ``resource`` that they count, limits on pools the ``pool_field`` of which they list values.
    """

    field: str
    label: str
    unit: LimitUnit
    scope: LimitScope
    help: str
    resource: Resource | None = None
    pool_field: str | None = None

    @property
    def key(self) -> str:
        """The limit's name in files, which take durations in any unit of time."""
        return self.field.removesuffix("_s") if self.unit is LimitUnit.SECONDS else self.field

    @property
    def is_budget(self) -> bool:
        """Return whether it limits dollars spent, so that exceeding it stops jobs, not launches."""
        return self.scope in (LimitScope.JOB, LimitScope.MONTH)


def limit_row(
    label: str,
    unit: LimitUnit,
    scope: LimitScope,
    text: str,
    *,
    resource: Resource | None = None,
    pool_field: str | None = None,
) -> Mapping[str, Any]:
    """Return the metadata that makes a dataclass field a row of the limits table."""
    return {
        **described(text),
        "limit": LimitSpec("", label, unit, scope, text, resource, pool_field),
    }


def limit_specs(limits: type[Any]) -> tuple[LimitSpec, ...]:
    """Return the rows of a dataclass of limits, in the order of its fields.

    Raises TypeError if a field has no row.
    """
    missing = [each.name for each in fields(limits) if "limit" not in each.metadata]
    if missing:
        raise TypeError(f"{limits.__name__} has limits without a row: {', '.join(missing)}")
    return tuple(replace(each.metadata["limit"], field=each.name) for each in fields(limits))
