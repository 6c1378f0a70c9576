"""Training on virtual nodes: what the real runtime would do, as arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from costopt.domain.array import TaskRecord, parallel_tasks
from costopt.domain.errors import BadRequestError, CatalogError
from costopt.domain.fleet import Node
from costopt.domain.job import Job
from costopt.domain.market import InstanceType
from costopt.domain.ports import Clock, InstanceCatalog
from costopt.domain.power import PowerCap
from costopt.domain.progress import Progress
from costopt.domain.runtime import (
    CheckpointRecord,
    NodeReport,
    PowerLimitRecord,
    PowerProbeRecord,
    RejectedCheckpointRecord,
)
from costopt.domain.transfers import TransferPrices, pools_without_data, start_transfers
from costopt_sim.array import SimulatedArray, SimulatedWorker
from costopt_sim.fleet import BEGINNING_OF_TIME, SimFleet
from costopt_sim.training import SimulatedGang, SimulatedTraining, speeds_of


class VirtualRuntime:
    """Implements the Runtime port: a gang trains at the job's constant speed for its machines.

    It begins when its last node has started up (``job.startup_s`` after its launch), has the job's
    cache and, where there is something to restore, ``restore_s`` later; in between it fetches what
    lies in another region, unless a node of an earlier gang has it. Under a power cap it keeps the
    share of its speed that the cap leaves. See Training for how it stops.
    """

    def __init__(
        self,
        clock: Clock,
        fleet: SimFleet,
        machines: InstanceCatalog,
        transfers: TransferPrices | None = None,
    ) -> None:
        self._transfers = transfers
        self._clock = clock
        self._fleet = fleet
        self._machines = machines
        self._trainings: dict[str, SimulatedTraining | SimulatedArray] = {}
        self._caps: dict[str, PowerCap | None] = {}
        self._fetched_at: dict[str, dict[str, datetime]] = {}

    def form_gang(
        self,
        job: Job,
        generation: int,
        nodes: tuple[Node, ...],
        checkpoint_interval_s: float,
        power_cap: PowerCap | None = None,
    ) -> None:
        """Train on these nodes from now on; the present or an older generation changes nothing.

        A gang that still trains saves first, as a real one does when it is regrouped.
        Raises BadRequestError, CatalogError.
        """
        training = self._training(job)
        now = self._settle(training)
        if generation <= training.generation or training.finished:
            return
        if isinstance(training, SimulatedArray):
            new = [self._worker(job, node) for node in nodes if not training.knows(node.node_id)]
            training.join(generation, (node.node_id for node in nodes), new, now)
            self.cap_power(job, power_cap)
            return
        if not nodes or not checkpoint_interval_s > 0:
            raise BadRequestError(
                f"job {job.name!r}: a gang of {len(nodes)} nodes that saves every "
                f"{checkpoint_interval_s} s cannot be formed"
            )
        machines = [self._machine(node) for node in nodes]
        speeds = speeds_of(job, machines, training.progress(now).done_units)
        base_units, free_at = training.regroup(now)
        gang = SimulatedGang(
            generation=generation,
            node_ids=tuple(node.node_id for node in nodes),
            trains_at=self._trains_at(job, nodes, free_at, base_units),
            base_units=base_units,
            amount_units=job.work.amount,
            units_per_s=speeds.units_per_s * _speed(power_cap),
            paces=speeds.paces,
            interval_s=checkpoint_interval_s,
            save_s=job.checkpoint.save_s,
        )
        training.begin(gang, now)
        self._limit(job, power_cap)

    def cap_power(self, job: Job, power_cap: PowerCap | None) -> None:
        """The gang goes on at the speed under its new cap, without a start."""
        training = self._training(job)
        now = self._settle(training)
        before = self._caps.get(job.name)
        if before != power_cap:
            training.change_speed(_speed(power_cap) / _speed(before), now)
            self._limit(job, power_cap)

    def power_limits(self, job: Job) -> tuple[PowerLimitRecord, ...]:
        """Every node of a gang that was ever capped does as it is asked."""
        if job.name not in self._caps:
            return ()
        cap = self._caps[job.name]
        cap_w, message = (None, "no limit") if cap is None else (cap.cap_w, "simulated")
        node_ids = self._training(job).node_ids
        return tuple(PowerLimitRecord(node_id, cap_w, cap_w, message) for node_id in node_ids)

    def probe_power_limit(self, job: Job, number: int, cap_w: float | None, seconds: float) -> None:
        """Simulated nodes measure nothing."""

    def power_probes(self, job: Job) -> tuple[PowerProbeRecord, ...]:  # noqa: ARG002
        """Simulated nodes measure nothing."""
        return ()

    def node_reports(self, job: Job) -> tuple[NodeReport, ...]:  # noqa: ARG002
        """Simulated nodes measure nothing: their energy is the model's."""
        return ()

    def settled_tasks(self, job: Job) -> tuple[TaskRecord, ...]:
        """Return the tasks that are done, in order of their end."""
        training = self._training(job)
        self._settle(training)
        return tuple(training.records) if isinstance(training, SimulatedArray) else ()

    def progress(self, job: Job, now: datetime) -> Progress:
        """How far the job is at ``now``; a job that never had a gang has done nothing."""
        training = self._trainings.get(job.name)
        if training is None:
            return Progress()
        self._fleet.advance(now)
        training.settle(now)
        return training.progress(now)

    def checkpoints(self, job: Job, after_units: float) -> tuple[CheckpointRecord, ...]:
        """Durable checkpoints beyond ``after_units``.

        Between two calls for a job only the newest one is retained, as in a store that prunes.
        """
        training = self._training(job)
        self._settle(training)
        return training.checkpoints(after_units)

    def rejected_checkpoints(self, job: Job) -> tuple[RejectedCheckpointRecord, ...]:  # noqa: ARG002
        """Simulated checkpoints are never torn."""
        return ()

    def unreported(
        self,
        job: Job,  # noqa: ARG002
        node_ids: Iterable[str],  # noqa: ARG002
    ) -> frozenset[str]:
        """Simulated nodes report from their launch on."""
        return frozenset()

    def unreachable_s(
        self,
        job: Job,  # noqa: ARG002
        node_ids: Iterable[str],  # noqa: ARG002
    ) -> Mapping[str, float]:
        """Simulated nodes report until they end."""
        return {}

    def last_heartbeat_at(
        self,
        job: Job,  # noqa: ARG002
        node_ids: Iterable[str],  # noqa: ARG002
    ) -> Mapping[str, datetime]:
        """Simulated nodes send no heartbeats."""
        return {}

    def drain(self, job: Job, node_ids: Iterable[str]) -> None:
        """The gang that holds one of these nodes stops training now and saves."""
        training = self._training(job)
        training.drain(node_ids, self._settle(training))

    def is_drained(self, job: Job) -> frozenset[str]:
        """Nodes asked to drain whose gang has saved, or that had nothing to save."""
        training = self._training(job)
        self._settle(training)
        return training.drained()

    def _trains_at(
        self, job: Job, nodes: tuple[Node, ...], free_at: datetime, saved_units: float
    ) -> datetime:
        """When all have started up and fetched, and restored where there is something to."""
        restoring = saved_units > 0
        fetched_at = self._fetch(job, nodes, max(self._started_at(job, nodes), free_at), restoring)
        restore_s = job.checkpoint.restore_s if restoring else 0.0
        return fetched_at + timedelta(seconds=restore_s)

    def _fetch(
        self, job: Job, nodes: tuple[Node, ...], ready_at: datetime, restoring: bool
    ) -> datetime:
        """When the nodes, ready at this instant, have what lies in other regions."""
        known = self._fetched_at.setdefault(job.name, {})
        begun = [known[node.node_id] for node in nodes if node.node_id in known]
        fetched_at = max([ready_at, *begun])
        for pool in pools_without_data(nodes, known):
            machine = self._machines.instance_type(pool)
            assert machine is not None
            moves = start_transfers(job, pool, self._transfers, restoring=restoring)
            took = timedelta(hours=sum(move.hours(machine) for move in moves))
            fetched_at = max(fetched_at, ready_at + took)
        known.update((node.node_id, fetched_at) for node in nodes if node.node_id not in known)
        return fetched_at

    def _limit(self, job: Job, power_cap: PowerCap | None) -> None:
        """Remember the cap; a job that never had one is not recorded as uncapped."""
        if power_cap is not None or job.name in self._caps:
            self._caps[job.name] = power_cap

    def _worker(self, job: Job, node: Node) -> SimulatedWorker:
        machine = self._machine(node)
        task_s = 1 / speeds_of(job, [machine], 0.0).units_per_s
        slots = parallel_tasks(job, machine, 1) or 1
        ready_at = self._fetch(job, (node,), self._started_at(job, (node,)), restoring=False)
        return SimulatedWorker(node.node_id, ready_at, slots, task_s * slots)

    def _training(self, job: Job) -> SimulatedTraining | SimulatedArray:
        if job.name not in self._trainings:
            self._trainings[job.name] = (
                SimulatedTraining(job, self._fleet)
                if job.array is None
                else SimulatedArray(job, self._fleet, job.array.tasks)
            )
        return self._trainings[job.name]

    def _started_at(self, job: Job, nodes: Iterable[Node]) -> datetime:
        """When the last node has started up and holds the cache, which it keeps."""
        return max(
            (
                node.launched_at
                + timedelta(seconds=job.startup_s + job.cache_s(self._machine(node)))
                for node in nodes
            ),
            default=BEGINNING_OF_TIME + timedelta(seconds=job.startup_s),
        )

    def _settle(self, training: SimulatedTraining | SimulatedArray) -> datetime:
        now = self._clock.now()
        self._fleet.advance(now)
        training.settle(now)
        return now

    def _machine(self, node: Node) -> InstanceType:
        machine = self._machines.instance_type(node.pool)
        if machine is None:
            raise CatalogError(f"instance type of {node.pool} is not in the catalogue")
        return machine


def _speed(power_cap: PowerCap | None) -> float:
    return 1.0 if power_cap is None else power_cap.speed
