"""A Slurm cluster as a provider of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from costopt.domain.errors import ProviderError
from costopt.domain.fleet import EndCause, LaunchRequest, Node, NodeBill
from costopt.domain.market import Interruption, Offer, Pool
from costopt.domain.ports import Clock
from costopt.provider.base import Check, Provider
from costopt.provider.node_book import NodeBook
from costopt_slurm.access import SlurmAccess
from costopt_slurm.batch_script import step_name
from costopt_slurm.cluster_state import ClusterState
from costopt_slurm.doctor import SlurmDoctor
from costopt_slurm.gang_tags import NAME, GangTags, parse_node_id
from costopt_slurm.inventory import GangInventory
from costopt_slurm.launch import CommandOf, GangLauncher
from costopt_slurm.offers import PartitionOffers
from costopt_slurm.options import SlurmOptions


class SlurmProvider(Provider):
    """A gang is one batch job; its nodes are named by the job's id and their number in it.

    ``command_of`` says what nodes run in place of the agent.
    """

    def __init__(
        self,
        clock: Clock,
        options: SlurmOptions,
        queries: SlurmAccess,
        command_of: CommandOf | None = None,
    ) -> None:
        self.options = options
        self._clock = clock
        self._queries = queries
        self._book = NodeBook(order=parse_node_id)
        self._cluster = ClusterState(queries, options)
        self._offers = PartitionOffers(options, self._cluster, self._book)
        self._inventory = GangInventory(queries, self._cluster, self._book, options.folder)
        self._launcher = GangLauncher(
            options, queries, self._cluster, self._offers, self._inventory, command_of
        )

    @property
    def names(self) -> frozenset[str]:
        """Only "slurm"."""
        return frozenset({NAME})

    def notice_s(self, pool: Pool) -> float:
        """Return the grace time of the pool's partition. Raise ProviderError."""
        return self._cluster.grace_s(pool.zone, self._clock.now())

    def offers(self, now: datetime) -> Sequence[Offer]:
        """Return an offer for each node type in each partition. Raise ProviderError."""
        return self._offers.now(now)

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        """Submit a gang, which may wait in the queue; see ``GangLauncher``. Raise ProviderError."""
        return self._launcher.launch(request, self._clock.now())

    def nodes(self, owner: str) -> tuple[Node, ...]:
        """Return every node with this owner tag; ended ones for two hours. Raise ProviderError."""
        return self._inventory.nodes(owner, self._clock.now())

    def restore_known_nodes(self, nodes: Iterable[Node]) -> None:
        """Add nodes that may have ended, and been forgotten, while no controller ran."""
        self._book.remember(nodes)

    def notices(self, owner: str) -> tuple[Interruption, ...]:
        """Return preemptions that have begun, and time limits that are near."""
        return self._inventory.notices(owner, self._clock.now())

    def terminate(self, node_id: str) -> None:
        """Release a node: its job if it is the last of its gang, else its step alone.

        Slurm holds, and the site charges, the nodes of a job until it ends. Raise ProviderError.
        """
        parsed = parse_node_id(node_id)
        gang = None if parsed is None else self._inventory.gang(parsed[0], self._clock.now())
        if parsed is None or gang is None or parsed[1] >= gang[1].nodes:
            return
        job, tags = gang
        number = parsed[1]
        if number not in tags.released:
            tags = tags.with_released(number)
            self._mark(job.job_id, tags)
        if len(tags.released) == tags.nodes:
            self._queries.cancel(str(job.job_id))
        elif not job.is_waiting:
            step = self._queries.steps(job.job_id).get(step_name(number))
            if step is not None:
                self._queries.cancel(step)

    def bill(self, node: Node) -> NodeBill | None:
        """Return the site's rate for as long as Slurm held the node; waiting costs nothing."""
        if node.ended_at is None:
            return None
        ran = node.end_cause is not EndCause.NO_CAPACITY
        source = f"the site's rate, for as long as Slurm held job {node.node_id.partition('-')[0]}"
        return NodeBill(((node.launched_at, node.usd_per_hour if ran else 0.0),), 0.0, source)

    def checks(self, owner: str, store: str | None) -> Iterator[Check]:  # noqa: ARG002
        """Check whether the cluster can run jobs."""
        return SlurmDoctor(self._queries, self._cluster, self.options).checks(
            store, self._clock.now()
        )

    def access_policies(self, owner: str, store: str | None) -> Mapping[str, object]:  # noqa: ARG002
        """Return nothing: the rights of a user of the cluster are enough."""
        return {}

    def close(self) -> None:
        """Do nothing: no connection is held."""

    def _mark(self, job_id: int, tags: GangTags) -> None:
        """Write down that a node is released, for any controller that sees it end."""
        try:
            self._queries.set_comment(job_id, tags.comment())
        except ProviderError:
            if self._inventory.gang(job_id, self._clock.now()) is not None:
                raise
