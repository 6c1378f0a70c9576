"""Launches: one sbatch for a gang, all nodes or none, and never twice."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from costopt.domain.errors import BadRequestError, NoCapacityError
from costopt.domain.fleet import LaunchRequest, Node
from costopt.provider.launch import CapacityBackoff, IdempotentLauncher, payload_of
from costopt_slurm.access import SlurmAccess
from costopt_slurm.batch_script import WARNING_S, NodeCommand, agent_command, batch_script
from costopt_slurm.cluster_state import ClusterState, NodeListing, reserved_from, run_limit_s
from costopt_slurm.gang_tags import NAME, GangTags, job_name
from costopt_slurm.inventory import GangInventory
from costopt_slurm.offers import PartitionOffers
from costopt_slurm.options import SlurmOptions

CommandOf = Callable[[LaunchRequest, NodeCommand], str]
"""Returns the shell text that each node of a launch runs."""


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """What sbatch is asked with."""

    script: str
    options: tuple[str, ...]


class GangLauncher:
    """Submits gangs. The job's name follows from the launch's key, which is looked up before."""

    def __init__(
        self,
        options: SlurmOptions,
        queries: SlurmAccess,
        cluster: ClusterState,
        offers: PartitionOffers,
        inventory: GangInventory,
        command_of: CommandOf | None = None,
    ) -> None:
        self._options = options
        self._queries = queries
        self._cluster = cluster
        self._offers = offers
        self._inventory = inventory
        self._command_of = command_of or self._agent
        self._once = IdempotentLauncher(
            self._launched, self._order, self._submit, CapacityBackoff(str, attrgetter("nodes"))
        )

    def launch(self, request: LaunchRequest, now: datetime) -> tuple[Node, ...]:
        """Return the nodes of this key, launched now or before, waiting or not.

        Raise ProviderError; ProviderUnavailableError while it is unknown whether they exist.
        """
        self._check(request, now)
        return self._once.launch(request, now)

    def _check(self, request: LaunchRequest, now: datetime) -> None:
        pool, options = request.pool, self._options
        if pool.provider != NAME or pool.region != options.cluster:
            raise BadRequestError(
                f"{pool}: not a pool of cluster {options.cluster}",
                hint=f"its partitions in use are {', '.join(options.partitions)}",
            )
        if options.is_owned(pool) and options.type_and_gpus(pool)[0] in options.nodes:
            return
        known = pool.zone in options.partitions
        if not known or pool.instance_type not in options.node_types_of(pool.zone):
            raise BadRequestError(f"{pool}: the account file names no such partition or node type")
        if self._offers.pool(pool.zone, pool.instance_type, now) != pool:
            raise BadRequestError(f"{pool}: partition {pool.zone} has other terms")

    def _launched(self, request: LaunchRequest, now: datetime) -> tuple[Node, ...]:
        return self._inventory.launched(request.owner, request.key, request.nodes, now)

    def _order(self, request: LaunchRequest, now: datetime) -> BatchOrder:
        pool, options = request.pool, self._options
        name, gpus = options.type_and_gpus(pool)
        partition, node_type = options.partition_of(pool), options.node_types[name]
        terms = options.partitions[partition]
        usd, wait_s = terms.usd_per_hour(gpus), terms.max_wait_s(pool.capacity_type)
        is_owned = options.is_owned(pool)
        if is_owned:
            usd, wait_s = options.usd_per_gpu_hour * gpus, 0.0
        if usd is None:
            raise NoCapacityError(f"{pool}: its price is not known, so nothing is launched there")
        snapshot = self._cluster.snapshot()
        sizes: tuple[str, ...] = ("--exclusive", "--mem=0")
        if is_owned:
            sizes = self._offers.owned.size_options(pool)
        elif wait_s == 0 and self._offers.idle(pool, snapshot) < request.nodes:
            raise NoCapacityError(f"{pool}: fewer than {request.nodes} nodes are idle")
        tags = GangTags.of_request(request, usd, wait_s)
        node = NodeCommand(
            python=options.python,
            setup=options.setup,
            gpus=gpus,
            gres=node_type.gres_of(gpus),
            grace_s=self._cluster.grace_s(partition, now),
        )
        text = batch_script(
            request, node, self._command_of(request, node), options.folder, options.bin
        )
        asked = self._sbatch_options(request, tags, node, snapshot, now)
        return BatchOrder(text, (*asked, *sizes))

    def _sbatch_options(
        self,
        request: LaunchRequest,
        tags: GangTags,
        node: NodeCommand,
        snapshot: NodeListing,
        now: datetime,
    ) -> tuple[str, ...]:
        pool = request.pool
        terms = self._options.partitions[self._options.partition_of(pool)]
        node_type = self._options.node_types[self._options.type_and_gpus(pool)[0]]
        features = (node_type.constraint, terms.constraint)
        passed_on = {
            "account": terms.account,
            "qos": terms.qos,
            "constraint": "&".join(each for each in features if each),
            "reservation": terms.reservation,
        }
        return (
            f"--job-name={job_name(request.key)}",
            f"--comment={tags.comment()}",
            f"--partition={self._options.partition_of(pool)}",
            f"--nodes={request.nodes}",
            "--ntasks-per-node=1",
            f"--gres={node.gres}",
            f"--time={self._limit_minutes(request, snapshot, now)}",
            f"--signal=TERM@{WARNING_S:.0f}",
            "--no-requeue",
            "--dependency=singleton",
            "--open-mode=append",
            "--chdir=/",
            "--output=/dev/null",
            *(f"--{name}={value}" for name, value in passed_on.items() if value),
        )

    def _limit_minutes(self, request: LaunchRequest, snapshot: NodeListing, now: datetime) -> int:
        """Return the time limit, which ends before nodes are reserved for something else."""
        pool = request.pool
        partition = self._options.partition_of(pool)
        terms = self._options.partitions[partition]
        max_run_s = self._cluster.max_run_s(self._cluster.partition(partition, now))
        if max_run_s is None:
            raise BadRequestError(
                f"{pool}: the partition has neither MaxTime nor DefaultTime",
                hint="add max_run_h to the account file: a job without a limit blocks maintenance",
            )
        hosts = self._offers.hosts(pool, snapshot)
        reserved_at = reserved_from(snapshot.reservations, hosts, terms.reservation, now)
        limit_s = run_limit_s(max_run_s, reserved_at, now)
        if limit_s is None:
            raise NoCapacityError(f"{pool}: its nodes are reserved from {reserved_at:%H:%M} UTC on")
        return max(1, math.floor(limit_s / 60))

    def _agent(self, request: LaunchRequest, node: NodeCommand) -> str:
        return agent_command(payload_of(self._options.payloads, request), node)

    def _submit(self, order: BatchOrder, now: datetime) -> None:  # noqa: ARG002
        self._queries.submit(order.script, order.options)
