"""What the cluster is: settings and partitions, cached, and its nodes and reservations, not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from costopt.domain.errors import BadRequestError
from costopt.provider.cache import TtlCache
from costopt_slurm.access import SlurmAccess
from costopt_slurm.options import SlurmNodeType, SlurmOptions
from costopt_slurm.records import (
    ClusterSettings,
    NodeLoad,
    PartitionNode,
    PartitionState,
    ReservedTime,
)

SETTINGS_TTL_S = 300.0
USABLE_S = 3600.0
MIN_RUN_S = 300.0
"""A job that ends sooner trains next to nothing."""


@dataclass(frozen=True, slots=True)
class NodeListing:
    """Nodes and reservations at an instant."""

    nodes: tuple[PartitionNode, ...]
    reservations: tuple[ReservedTime, ...]

    def hosts_of(
        self, partition: str, node_type: SlurmNodeType, constraint: str | None = None
    ) -> tuple[PartitionNode, ...]:
        """Return the nodes of this type in a partition."""
        features = {each for each in (node_type.constraint, constraint) if each and each.isalnum()}
        return tuple(
            node
            for node in self.nodes
            if node.partition == partition
            and has_gres(node.gres, node_type.requested_gres)
            and features <= node.features
        )


class ClusterState:
    """Raises ProviderError where Slurm does not answer. Safe to share between threads."""

    def __init__(self, queries: SlurmAccess, options: SlurmOptions) -> None:
        self._queries = queries
        self._options = options
        self._settings: TtlCache[None, ClusterSettings] = TtlCache(SETTINGS_TTL_S, USABLE_S)
        self._partitions: TtlCache[None, Mapping[str, PartitionState]] = TtlCache(
            SETTINGS_TTL_S, USABLE_S
        )

    def settings(self, now: datetime) -> ClusterSettings:
        """Return the cluster's settings."""
        return self._settings.get(None, now, self._queries.settings)

    def partitions(self, now: datetime) -> Mapping[str, PartitionState]:
        """Return all partitions of the cluster."""
        return self._partitions.get(None, now, self._queries.partitions)

    def partition(self, name: str, now: datetime) -> PartitionState:
        """Return one partition. Raise BadRequestError where the cluster has none of that name."""
        known = self.partitions(now)
        if name not in known:
            raise BadRequestError(
                f"cluster {self._options.cluster} has no partition {name!r}",
                hint=f"it has {', '.join(sorted(known))}; correct partitions: in the account file",
            )
        return known[name]

    def is_preempted(self, partition: PartitionState, now: datetime) -> bool:
        """Return whether jobs of a higher partition take its nodes: the account's word counts.

        Raise BadRequestError where neither it nor the cluster says so.
        """
        named = self._options.partitions[partition.name].preemptible
        if named is not None:
            return named
        if partition.preempt_mode is None:
            raise BadRequestError(
                f"slurmrestd does not show whether partition {partition.name} is preempted",
                hint=f"add preemptible: true or false to partition {partition.name}",
            )
        preempts = self.settings(now).is_preempting
        return preempts and partition.preempt_mode.upper() not in ("OFF", "", "DISABLED")

    def grace_s(self, partition: str, now: datetime) -> float:
        """Return the seconds between a preemption and its end; those of the account count."""
        named = self._options.partitions.get(partition)
        if named is not None and named.grace_s is not None:
            return named.grace_s
        known = self.partitions(now).get(partition)
        return 0.0 if known is None else known.grace_s

    def snapshot(self) -> NodeListing:
        """Return nodes and reservations as they are."""
        return NodeListing(self._queries.nodes(), self._queries.reservations())

    def loads(self, partition: str) -> Mapping[str, NodeLoad]:
        """Return what jobs hold of the nodes of a partition, as it is."""
        return self._queries.loads(partition)

    def max_run_s(self, partition: PartitionState) -> float | None:
        """Return the time limit of a launch; None where neither cluster nor account name one."""
        asked = self._options.max_run_h
        limits = [partition.max_time_s, None if asked is None else asked * 3600]
        known = [limit for limit in limits if limit is not None]
        return min(known) if known else partition.default_time_s


def reserved_from(
    reservations: tuple[ReservedTime, ...],
    hosts: tuple[PartitionNode, ...],
    own: str | None,
    now: datetime,
) -> datetime | None:
    """Return when the first of these nodes is reserved for something else, None if none is."""
    names = {node.host for node in hosts}
    starts = [
        each.starts_at
        for each in reservations
        if each.name != own and each.ends_at > now and not names.isdisjoint(each.hosts)
    ]
    return min(starts, default=None)


def run_limit_s(max_run_s: float, reserved_at: datetime | None, now: datetime) -> float | None:
    """Return the time limit that ends before the reservation; None where that is too soon.

    A job with a longer limit would wait until the reservation is over.
    """
    if reserved_at is None or reserved_at <= now:
        return max_run_s
    limit_s = min(max_run_s, (reserved_at - now - timedelta(minutes=1)).total_seconds())
    return limit_s if limit_s >= min(MIN_RUN_S, max_run_s) else None


def has_gres(shown: str, requested: str) -> bool:
    """Return whether a node that shows "gpu:h100:8" has exactly what is requested of that kind.

    A request that names no model counts those of all models.
    """
    kind, _, rest = requested.partition(":")
    model, _, count = rest.rpartition(":")
    total = 0
    for part in shown.split(","):
        fields = part.split(":")
        if fields[0] == kind and (not model or model in fields[1:-1]) and fields[-1].isdigit():
            total += int(fields[-1])
    return total == int(count)
