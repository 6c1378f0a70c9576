"""A run of six hours as its events tell it: two nodes, three interruptions, on-demand at the end.

The gang starts in one spot pool, loses a node twice without and once with notice, moves to
another zone and region, and ends on demand, 29 minutes before its deadline.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from costopt.domain.events import (
    CheckpointCommitted,
    CheckpointRefused,
    DecisionMade,
    Event,
    GangFormed,
    GuardTripped,
    InterruptionNoticed,
    JobFinished,
    JobSubmitted,
    LaunchFailed,
    LaunchIntended,
    NodeEnded,
    NodeLaunched,
    PriceChanged,
    ProgressReported,
    SignalStale,
    TerminateIntended,
    TrainingStarted,
    TrainingStopped,
    WorkLost,
)
from costopt.domain.fleet import EndCause

START_AT = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
DEADLINE_AT = START_AT + timedelta(hours=6)
UNITS_PER_S = 2.0
WORK_UNITS = 33_000.0

SPOT_A = "aws/us-east-2/us-east-2a/p5.48xlarge/spot"
SPOT_B = "aws/us-east-2/us-east-2c/p5.48xlarge/spot"
SPOT_C = "gcp/us-central1/us-central1-a/a3-highgpu-8g/spot"
UNINTERRUPTIBLE = "aws/us-east-2/us-east-2b/p5.48xlarge/on_demand"

_MICROS_PER_HOUR = {
    SPOT_A: 21_400_000,
    SPOT_B: 23_100_000,
    SPOT_C: 19_900_000,
    UNINTERRUPTIBLE: 55_040_000,
}


class SampleRun:
    """Writes the run's events in the order in which an engine would record them."""

    def __init__(self, job: str = "llama-7b-finetune", gco2e_per_kwh: float | None = 414.0) -> None:
        self.job = job
        self.gco2e_per_kwh = gco2e_per_kwh
        self.events: list[Event] = []
        self.done_units = 0.0
        self.saved_units = 0.0
        self.generation = 0

    def at(self, minutes: float) -> datetime:
        """An instant of the run."""
        return START_AT + timedelta(minutes=minutes)

    def submit(self) -> None:
        """The job and its on-demand baseline."""
        self.events += [
            JobSubmitted(
                at=START_AT,
                job=self.job,
                work_units=WORK_UNITS,
                unit="steps",
                start_at=START_AT,
                deadline_at=DEADLINE_AT,
                policy="cheapest",
                strategy="milp",
                tenant="default",
                baseline_pool=UNINTERRUPTIBLE,
                baseline_usd_micros=519_600_000,
                baseline_wh=73_700.0,
                baseline_gco2e=30_512.0,
                baseline_startup_usd_micros=0,
                baseline_startup_wh=0.0,
            ),
            SignalStale(
                at=START_AT,
                job=self.job,
                source="gcp/us-east4",
                message="price of gcp/us-east4 is 2 h 10 min old; its offers are excluded",
            ),
        ]

    def decide(self, minutes: float, pool: str, nodes: int, reason: str) -> None:
        """What the strategy wants from here on."""
        slack_s = max(0.0, (DEADLINE_AT - self.at(minutes)).total_seconds())
        slack_s -= (WORK_UNITS - self.done_units) / UNITS_PER_S
        self.events.append(
            DecisionMade(
                at=self.at(minutes),
                job=self.job,
                decision_id=f"d{minutes:g}",
                targets=((pool, nodes),) if nodes else (),
                reason=reason,
                rule="shield" if pool == UNINTERRUPTIBLE else None,
                slack_s=slack_s,
            )
        )

    def launch(self, minutes: float, pool: str, names: str) -> None:
        """An intent and its nodes."""
        key = f"{pool}@{minutes:g}"
        at, ready = self.at(minutes), self.at(minutes + 0.5)
        price = _MICROS_PER_HOUR[pool]
        self.events.append(
            LaunchIntended(
                at=at,
                job=self.job,
                key=key,
                pool=pool,
                nodes=len(names.split()),
                planned_micros_per_hour=price,
            )
        )
        self.events += [
            NodeLaunched(
                at=ready,
                job=self.job,
                key=key,
                node_id=name,
                pool=pool,
                launched_at=ready,
                micros_per_hour=price,
                idle_w=2300.0,
                busy_w=7050.0,
                pue=1.13,
                gco2e_per_kwh=self.gco2e_per_kwh,
                energy_basis="modelled",
            )
            for name in names.split()
        ]

    def refuse(self, minutes: float, pool: str) -> None:
        """A launch for which there is no capacity."""
        key = f"{pool}@{minutes:g}"
        at = self.at(minutes)
        self.events += [
            LaunchIntended(
                at=at, job=self.job, key=key, pool=pool, nodes=2, planned_micros_per_hour=21_400_000
            ),
            LaunchFailed(
                at=at,
                job=self.job,
                key=key,
                pool=pool,
                error="NoCapacityError",
                message=f"no capacity in {pool}",
            ),
        ]

    def train(self, start: float, end: float, nodes: str, reason: str) -> None:
        """A gang trains, saving every 15 minutes."""
        self.generation += 1
        job, generation = self.job, self.generation
        began = self.saved_units
        self.events += [
            GangFormed(
                at=self.at(start - 4),
                job=job,
                generation=generation,
                node_ids=tuple(nodes.split()),
                checkpoint_interval_s=900.0,
            ),
            TrainingStarted(at=self.at(start), job=job, generation=generation, units=began),
        ]
        minutes = start
        while (minutes := minutes + 5) < end:
            self._report(minutes, began + (minutes - start) * 60 * UNITS_PER_S)
            if (minutes - start) % 15 == 0:
                self.save(minutes)
        self._report(end, began + (end - start) * 60 * UNITS_PER_S)
        self.events.append(
            TrainingStopped(
                at=self.at(end),
                job=job,
                generation=generation,
                units=self.done_units,
                reason=reason,
            )
        )

    def save(self, minutes: float) -> None:
        """A checkpoint of all that is done."""
        self.saved_units = self.done_units
        self.events.append(
            CheckpointCommitted(
                at=self.at(minutes),
                job=self.job,
                units=self.saved_units,
                uri=f"s3://runs/llama-7b/step-{self.saved_units:.0f}",
                size_bytes=94_000_000_000,
                save_s=21.5,
            )
        )

    def interrupt(self, minutes: float, node_id: str, pool: str, *, notice_s: float = 0) -> None:
        """The provider takes a node, and work that was not saved is lost."""
        interrupts_at = self.at(minutes)
        if notice_s:
            noticed_at = interrupts_at - timedelta(seconds=notice_s)
            self.events.append(
                InterruptionNoticed(
                    at=noticed_at,
                    job=self.job,
                    node_id=node_id,
                    pool=pool,
                    interrupts_at=interrupts_at,
                )
            )
        self.events.append(
            NodeEnded(
                at=interrupts_at,
                job=self.job,
                node_id=node_id,
                pool=pool,
                ended_at=interrupts_at,
                cause=EndCause.INTERRUPTED,
            )
        )
        if self.done_units > self.saved_units:
            lost = self.done_units - self.saved_units
            self.events.append(
                WorkLost(at=interrupts_at, job=self.job, units=lost, cause=f"{node_id} interrupted")
            )
            self.done_units = self.saved_units

    def release(self, minutes: float, names: str, pool: str, reason: str) -> None:
        """Nodes are let go."""
        at = self.at(minutes)
        for name in names.split():
            self.events += [
                TerminateIntended(at=at, job=self.job, node_id=name, reason=reason),
                NodeEnded(
                    at=at,
                    job=self.job,
                    node_id=name,
                    pool=pool,
                    ended_at=at,
                    cause=EndCause.RELEASED,
                ),
            ]

    def reprice(self, minutes: float, pool: str, micros_per_hour: int) -> None:
        """The pool's price moves."""
        self.events.append(
            PriceChanged(
                at=self.at(minutes), job=self.job, pool=pool, micros_per_hour=micros_per_hour
            )
        )

    def _report(self, minutes: float, units: float) -> None:
        self.done_units = min(units, WORK_UNITS)
        self.events.append(
            ProgressReported(
                at=self.at(minutes),
                job=self.job,
                done_units=self.done_units,
                saved_units=self.saved_units,
                units_per_s=UNITS_PER_S,
            )
        )


def sample_events(
    job: str = "llama-7b-finetune", gco2e_per_kwh: float | None = 414.0
) -> tuple[Event, ...]:
    """The whole run, in order of time."""
    run = SampleRun(job, gco2e_per_kwh)
    run.submit()
    run.decide(0, SPOT_A, 2, "cheapest spot pool that keeps the deadline")
    run.launch(0, SPOT_A, "i-0a1 i-0a2")
    run.train(7, 66, "i-0a1 i-0a2", "node lost")
    run.interrupt(66, "i-0a2", SPOT_A)
    run.refuse(67, SPOT_A)
    run.decide(67, SPOT_B, 2, "us-east-2a has just taken a node: cooling down")
    run.release(67, "i-0a1", SPOT_A, "gang moves to us-east-2c")
    run.launch(67, SPOT_B, "i-0b1 i-0b2")
    run.train(75, 152, "i-0b1 i-0b2", "drained on notice")
    run.save(152)
    run.interrupt(153, "i-0b1", SPOT_B, notice_s=120)
    run.release(154, "i-0b2", SPOT_B, "gang moves to us-central1-a")
    run.decide(154, SPOT_C, 2, "next cheapest spot pool outside the cooldown")
    run.launch(154, SPOT_C, "gce-c1 gce-c2")
    run.train(163, 229, "gce-c1 gce-c2", "node lost")
    run.interrupt(229, "gce-c2", SPOT_C)
    run.release(230, "gce-c1", SPOT_C, "gang moves to on-demand")
    run.decide(230, UNINTERRUPTIBLE, 2, "slack used up: on-demand until the end")
    run.launch(230, UNINTERRUPTIBLE, "i-0d1 i-0d2")
    done_at = 238 + (WORK_UNITS - run.saved_units) / UNITS_PER_S / 60
    run.train(238, done_at, "i-0d1 i-0d2", "all work done")
    run.save(done_at)
    run.reprice(40, SPOT_A, 22_300_000)
    run.reprice(110, SPOT_B, 24_700_000)
    run.reprice(190, SPOT_C, 20_400_000)
    run.events += [
        CheckpointRefused(
            at=run.at(231),
            job=job,
            uri="s3://runs/llama-7b/step-25200",
            message="sha256 differs: the file is torn",
        ),
        GuardTripped(
            at=run.at(155),
            job=job,
            guard="max_price_ratio",
            message="gcp/us-east1-b asks 1.7 times its planned price",
        ),
        JobFinished(at=run.at(done_at), job=job, units=WORK_UNITS),
    ]
    run.release(done_at + 1, "i-0d1 i-0d2", UNINTERRUPTIBLE, "job finished")
    return tuple(sorted(run.events, key=lambda event: event.at))


def finished_at() -> datetime:
    """When the sample job finished."""
    return next(event.at for event in sample_events() if isinstance(event, JobFinished))
