"""The owner's nodes: those of the queue, and those that it has forgotten, with their ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import compress

from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.market import Interruption
from costopt.provider.node_book import NodeBook
from costopt_slurm.access import SlurmAccess
from costopt_slurm.batch_script import ENDED, ScriptEnd, launches_folder
from costopt_slurm.cluster_state import ClusterState
from costopt_slurm.gang_nodes import announced_ends, gang_nodes
from costopt_slurm.gang_tags import GangTags, job_name, parse_node_id
from costopt_slurm.records import BatchJob

IDLE_START_S = 60.0
"""How long a launch that was to find idle nodes may stay in the queue: the scheduler takes its time
(SchedulerParameters, sched_interval is 60 s)."""

Gangs = Mapping[int, tuple[BatchJob, GangTags]]


class GangInventory:
    """Lists and expires the batch jobs of all owners."""

    def __init__(
        self, queries: SlurmAccess, cluster: ClusterState, book: NodeBook, folder: str
    ) -> None:
        self._queries = queries
        self._cluster = cluster
        self._book = book
        self._folder = folder

    def nodes(self, owner: str, now: datetime) -> tuple[Node, ...]:
        """Return every node of the owner; ended ones for two hours. Raise ProviderError."""
        gangs = self.refresh(now)
        self._expire(gangs, now)
        seen = {n.node_id for job, tags in gangs.values() for n in gang_nodes(job, tags)}
        self._close(self._book.missing(owner, seen), now)
        self._book.forget(now)
        return self._book.known(owner)

    def notices(self, owner: str, now: datetime) -> tuple[Interruption, ...]:
        """Return the announced ends of living nodes. Raise ProviderError."""
        found = [
            notice
            for job, tags in self.refresh(now).values()
            if tags.owner == owner
            for notice in announced_ends(job, tags, self._cluster.grace_s(job.partition, now), now)
        ]
        return tuple(sorted(found, key=lambda notice: (notice.interrupts_at, notice.node_id)))

    def launched(self, owner: str, key: str, nodes: int, now: datetime) -> tuple[Node, ...]:
        """Return the nodes of a launch if they were ever made, else ()."""
        known = self._book.by_key(owner, key)
        if not known:
            self.refresh(now)
            known = self._book.by_key(owner, key)
        if not known and self._cluster.settings(now).accounting:
            accounted = self._queries.named_jobs(job_name(key), now - timedelta(days=30))
            self._book.see(_all_nodes(own_gangs(accounted).values()), now)
            known = self._book.by_key(owner, key)
        return known if len(known) >= nodes else ()

    def gang(self, job_id: int, now: datetime) -> tuple[BatchJob, GangTags] | None:
        """Return a job of the queue, None where it has ended or is not ours."""
        found = self.refresh(now).get(job_id)
        return None if found is None or found[0].is_over else found

    def refresh(self, now: datetime) -> Gangs:
        """Read the queue; of two jobs of one launch the first counts. Raise ProviderError."""
        gangs = own_gangs(self._queries.jobs())
        first = {tags.key: job_id for job_id, (_, tags) in sorted(gangs.items(), reverse=True)}
        counting = {i: gang for i, gang in gangs.items() if first[gang[1].key] == i}
        for job_id, (job, _) in gangs.items():
            if job_id not in counting and not job.is_over:
                self._queries.cancel(str(job_id))
        self._book.see(_all_nodes(counting.values()), now)
        return counting

    def _expire(self, gangs: Gangs, now: datetime) -> None:
        """Cancel jobs that have waited too long, or that Slurm has put back into the queue."""
        for job_id, (job, tags) in gangs.items():
            if not job.is_waiting:
                continue
            waited_s = (now - job.submitted_at).total_seconds()
            if job.restarts or waited_s >= max(tags.wait_s, IDLE_START_S):
                self._queries.cancel(str(job_id))

    def _close(self, missing: tuple[Node, ...], now: datetime) -> None:
        """Record how nodes ended whose jobs Slurm has forgotten."""
        by_job: dict[int, list[Node]] = {}
        for node in missing:
            parsed = parse_node_id(node.node_id)
            if parsed is not None:
                by_job.setdefault(parsed[0], []).append(node)
        if not by_job:
            return
        if self._cluster.settings(now).accounting:
            accounted = own_gangs(self._queries.ended_jobs(by_job), by_job)
            for job_id, (job, tags) in accounted.items():
                if job.is_over:
                    end = self._script_end(tags.key)
                    preempted_at = job.ends_at if end is not None and end.preempted else None
                    ended = replace(job, preempted_at=preempted_at)
                    self._book.see(gang_nodes(ended, tags), now)
                    del by_job[job_id]
        for nodes in by_job.values():
            self._close_unaccounted(nodes, now)

    def _close_unaccounted(self, nodes: list[Node], now: datetime) -> None:
        """By the script's record; a node without one is lost, or waited in vain."""
        end = self._script_end(nodes[0].key)
        if end is None:
            at, cause = now, EndCause.LOST
            why = "Slurm has forgotten the job, and its script left no record of its end"
        else:
            at, cause = end.at, EndCause.INTERRUPTED if end.preempted else EndCause.FAILED
            why = "Slurm has forgotten the job; its script ended when its agents had left"
            why += " on a preemption" * end.preempted
        if nodes[0].state is NodeState.WAITING:
            cause = EndCause.NO_CAPACITY
        self._book.end(nodes, at, cause, why, now)

    def _script_end(self, key: str) -> ScriptEnd | None:
        record = f"{launches_folder(self._folder)}/{key}/{ENDED}"
        return ScriptEnd.parse(self._queries.read_file(record))


def own_gangs(
    jobs: Iterable[BatchJob], known: Mapping[int, list[Node]] | None = None
) -> dict[int, tuple[BatchJob, GangTags]]:
    """Return our jobs with their tags, by id; accounts may lack comments, where nodes are known."""
    gangs = {}
    for job in jobs:
        tags = GangTags.of_job(job)
        if tags is None and known is not None and job.job_id in known:
            tags = _tags_of(known[job.job_id])
        if tags is not None:
            gangs[job.job_id] = job, tags
    return gangs


def _tags_of(nodes: list[Node]) -> GangTags:
    """Return the tags of a gang's known nodes: those that stop while others run were released."""
    first = nodes[0]
    numbers = [parsed[1] for node in nodes if (parsed := parse_node_id(node.node_id))]
    stopping = [node.state is NodeState.STOPPING for node in nodes]
    released = () if all(stopping) else compress(numbers, stopping)
    return GangTags(
        owner=first.owner,
        job=first.job,
        key=first.key,
        pool=str(first.pool),
        nodes=max(numbers) + 1,
        usd_per_hour=first.usd_per_hour,
        wait_s=0.0,
        released=tuple(released),
    )


def _all_nodes(gangs: Iterable[tuple[BatchJob, GangTags]]) -> list[Node]:
    return [node for job, tags in gangs for node in gang_nodes(job, tags)]
