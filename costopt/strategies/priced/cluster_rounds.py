"""The rounds of a cluster: sizes and places of its jobs' gangs, from one tick to the next.

It runs ``costopt.optimize.rounds`` as the replay of fleets does, and remembers between ticks what
each job was given. After a restart that is read off the nodes that run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from costopt.optimize.rounds.gangs import Flags, GangTable, Ints
from costopt.optimize.rounds.jobs import RoundJobs
from costopt.optimize.rounds.overflow import Queue
from costopt.optimize.rounds.placement import Placement, place_round
from costopt.optimize.rounds.priced import PricedPolicy
from costopt.optimize.rounds.virtual_share import VirtualShares
from costopt.strategies.priced.cluster_job import ClusterJob
from costopt.strategies.priced.owned_nodes import OwnedNodes, Slices

FIRST_SINCE_S = 0.0


class ClusterRounds:
    """The jobs of the nodes of one type. ``tenant_weights`` bound tenants by their virtual shares;
    without any there is no bound."""

    def __init__(
        self, nodes: OwnedNodes, policy: PricedPolicy, tenant_weights: Mapping[str, float]
    ) -> None:
        self.nodes = nodes
        self.price_usd_per_gpu_hour = 0.0
        self._policy = policy
        self._placement = Placement([nodes.node_gpus] * len(nodes.zones))
        self._ids: dict[str, int] = {}
        self._count = 0
        self._held: dict[int, int] = {}
        self._since_s: dict[int, float] = {}
        self._needed_s: dict[int, float] = {}
        self._tenants = {name: index for index, name in enumerate(tenant_weights)}
        none = np.zeros(0, dtype=np.int64)
        together = sum(tenant_weights.values())
        parts = [int(nodes.gpus * weight / together) for weight in tenant_weights.values()]
        self._partitions = np.array(parts, dtype=np.int64)
        several = len(tenant_weights) > 1
        self._shares = VirtualShares(none, none, self._partitions) if several else None
        self.see(nodes, ())

    def see(self, nodes: OwnedNodes, running: Collection[str]) -> None:
        """Leave to others what they use of the same nodes now. Gangs in their way that are not
        ``running`` yet lose their GPUs."""
        self.nodes = nodes
        for node, gpus in enumerate(nodes.others):
            if not self._placement.reserve(node, gpus):
                for job, number in self._ids.items():
                    if job not in running and node in self._placement.slices(number):
                        self.leave(job)
                self._placement.reserve(node, gpus)

    def held_gpus(self, job: str) -> int:
        """Return the GPUs that the job was given, 0 where it waits."""
        return self._held.get(self._ids.get(job, -1), 0)

    def slices(self, job: str) -> Slices:
        """Return the job's GPUs by node."""
        return dict(self._placement.slices(self._ids.get(job, -1)))

    @property
    def idle_gpus(self) -> int:
        """Return the GPUs that no job was given."""
        free = sum(self._placement.free_gpus)
        return min(free, self.nodes.usable_gpus - sum(self._held.values()))

    def knows(self, job: str) -> bool:
        """Return whether the job was in a round before."""
        return job in self._ids

    def adopt(self, job: ClusterJob, slices: Slices, since_s: float) -> None:
        """Take over a gang that runs, as after a restart, if it is one of the job's."""
        number = self._number(job)
        gpus = sum(slices.values())
        if gpus in dict(job.gangs.options) and self._placement.restore(number, slices):
            self._held[number], self._since_s[number] = gpus, since_s

    def leave(self, job: str) -> None:
        """Take a job's GPUs back: it runs elsewhere."""
        number = self._ids.get(job, -1)
        if self._held.pop(number, 0):
            self._placement.change([(number, 0)], frozenset())

    def decide(
        self,
        now_s: float,
        jobs: Sequence[ClusterJob],
        elsewhere: Sequence[ClusterJob],
        *,
        is_round: bool,
    ) -> None:
        """Give each of the jobs its GPUs; those elsewhere count for their tenants alone.

        Between two rounds only jobs that wait get any, at the price of the last.
        Jobs of the last round that are in neither have ended.
        """
        known = {job.name for job in (*jobs, *elsewhere)}
        self._end(now_s, [name for name in self._ids if name not in known])
        for job in (*jobs, *elsewhere):
            self._needed_s[self._number(job)] = job.served_s + job.remaining_s
        behind = self._behind(now_s, (*jobs, *elsewhere))[: len(jobs)]
        if not jobs:
            self.price_usd_per_gpu_hour = 0.0
            return
        ids = np.array([self._ids[job.name] for job in jobs], dtype=np.int64)
        table = self._round_jobs(now_s, ids, jobs, behind)
        gpus, price = self.nodes.usable_gpus, self.price_usd_per_gpu_hour
        if is_round:
            price, sizes = self._policy.decide(table, gpus)
        else:
            sizes = self._policy.admit(table, gpus, price)
        self.price_usd_per_gpu_hour = price
        changed = place_round(self._placement, ids, table, sizes, self._policy.protected_s)
        for number, gpus in changed.items():
            self._held[number], self._since_s[number] = gpus, now_s

    def price_and_gpus_with(
        self, now_s: float, jobs: Sequence[ClusterJob], job: ClusterJob
    ) -> tuple[float, int]:
        """Return the price of a GPU-hour in a round with ``job``, and its GPUs; nothing changes."""
        all_jobs = [*jobs, job]
        ids = np.array([self._number(each) for each in all_jobs], dtype=np.int64)
        table = self._round_jobs(now_s, ids, all_jobs, np.zeros(len(all_jobs), dtype=bool))
        price, sizes = self._policy.decide(table, self.nodes.usable_gpus)
        return price, int(sizes[-1])

    def leaving(
        self, now_s: float, jobs: Sequence[ClusterJob], spot_usd: Mapping[str, float]
    ) -> list[str]:
        """Return which of the jobs that have no GPU go to spot, at these dollars."""
        short = [job for job in jobs if self.held_gpus(job.name) < job.gangs.asked]
        usd = [
            math.inf if self.held_gpus(j.name) else spot_usd.get(j.name, math.inf) for j in short
        ]
        queue = Queue(
            weight=np.array([job.weight for job in short]),
            waited_s=np.array([now_s - job.submit_s - job.served_s for job in short]),
            needed_s=np.array([job.gangs.asked * job.remaining_s for job in short]),
            spot_usd=np.array(usd),
        )
        return [short[index].name for index in queue.leaving(max(1, self.nodes.usable_gpus))]

    def _round_jobs(
        self, now_s: float, ids: Ints, jobs: Sequence[ClusterJob], behind: Flags
    ) -> RoundJobs:
        remaining_s = np.array([job.remaining_s for job in jobs])
        weight = np.array([job.weight for job in jobs])
        since_s = np.array([self._since_s.get(int(number), FIRST_SINCE_S) for number in ids])
        return RoundJobs(
            gangs=GangTable.of([j.gangs.options for j in jobs], [j.gangs.asked for j in jobs]),
            weight=weight if self._shares is None else weight * self._shares.worth(ids),
            held=np.array([self._held.get(int(n), 0) for n in ids], dtype=np.int64),
            held_s=now_s - since_s, served_s=np.array([job.served_s for job in jobs]),
            remaining_s=remaining_s, spread=np.zeros(len(jobs)),
            index=1 / np.maximum(remaining_s.round(6), 1.0),
            submit_s=np.array([job.submit_s for job in jobs]),
            is_behind=behind | np.array([job.is_urgent for job in jobs]),
            price_cap=np.array([job.spot_usd_per_gpu_hour for job in jobs]),
        )  # fmt: skip

    def _behind(self, now_s: float, jobs: Sequence[ClusterJob]) -> Flags:
        """Which jobs have had less than in their tenant's own part of the cluster."""
        if self._shares is None or not jobs:
            return np.zeros(len(jobs), dtype=bool)
        ids = np.array([self._ids[job.name] for job in jobs], dtype=np.int64)
        served_s = np.array([job.served_s for job in jobs])
        self._shares.advance(now_s, ids, np.array([j.served_s + j.remaining_s for j in jobs]))
        return self._shares.is_behind(ids, served_s)

    def _number(self, job: ClusterJob) -> int:
        """Return the job's number, a new one where it is new."""
        known = self._ids.get(job.name)
        if known is not None:
            return known
        number = self._ids[job.name] = self._count
        self._count += 1
        if self._shares is not None:
            tenant = self._tenants.get(job.tenant, 0)
            self._shares.grow(tenant, min(job.gangs.asked, int(self._partitions[tenant])))
            self._shares.submit(number, job.submit_s)
        return number

    def _end(self, now_s: float, names: Sequence[str]) -> None:
        numbers = [self._ids.pop(name) for name in names]
        self._placement.change([(n, 0) for n in numbers if self._held.get(n)], frozenset())
        if self._shares is not None and numbers:
            needed_s = np.array([self._needed_s[number] for number in numbers])
            self._shares.end(np.array(numbers, dtype=np.int64), now_s, needed_s)
        for number in numbers:
            for memory in (self._held, self._since_s, self._needed_s):
                memory.pop(number, None)
