"""Observes nodes: brings the ledger in line with what the providers report as running.

Also the notices that nodes report of their own interruption, until the provider confirms them. A
job's command can write the reports of its nodes. So a node's own notice takes no capacity from
other jobs, never brings a job more nodes than it requests, and expires after a few minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from costopt.domain import events as ev
from costopt.domain.account_price import committed_micros, listed_micros
from costopt.domain.errors import CatalogError, ProviderError
from costopt.domain.events.node import UNKNOWN_BASIS
from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.market import Interruption, Pool
from costopt.domain.money import MICROS, to_micros
from costopt.domain.policy import CarbonSignal
from costopt.domain.runtime import NodeReport
from costopt.domain.text import untrusted_text
from costopt.domain.transfers import region_key, volume_usd_per_hour
from costopt.engine.emissions import Emissions
from costopt.engine.failures import ProviderFailures
from costopt.engine.gate import Gate
from costopt.engine.journal import Journal
from costopt.engine.node_ends import EndEstimator
from costopt.engine.settings import EngineSettings, World
from costopt.ledger.job_record import JobRecord
from costopt.provider.base import Capability, Provider


class FleetObserver:
    """The living nodes of all jobs, as the providers confirm them."""

    def __init__(
        self,
        world: World,
        journal: Journal,
        settings: EngineSettings,
        silence: ProviderFailures,
        gate: Gate,
        emissions: Emissions,
        ends: EndEstimator,
    ) -> None:
        self._world = world
        self._journal = journal
        self._settings = settings
        self._silence = silence
        self._gate = gate
        self._emissions = emissions
        self._ends = ends
        self._nodes: tuple[Node, ...] = ()
        self._by_job: dict[str, list[Node]] = {}

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return all living nodes."""
        return self._nodes

    def nodes_of(self, job: str) -> Sequence[Node]:
        """Return the living nodes of one job."""
        return self._by_job.get(job, ())

    def add(self, nodes: Iterable[Node]) -> None:
        """Add nodes that were launched since the providers were last polled."""
        self._keep((*self._nodes, *nodes))

    def observe(self, now: datetime) -> None:
        """Record launches, ends and notices that the ledger does not know yet.

        A provider or a region that does not answer keeps its last known nodes. A newly launched
        node that is not listed yet counts as living.
        """
        living: list[Node] = []
        unheard: set[str] = set()
        for provider in self._world.providers:
            try:
                listed, silent = self._listed(provider, now)
            except (ProviderError, CatalogError) as error:
                living += self._known(provider)
                unheard.update(provider.names)
                self._silence.is_failing(provider, "nodes", error, now)
            else:
                self._silence.ended(provider, "nodes")
                living += listed
                unheard |= silent
        self._keep(n for n in living if n.job in self._journal.records)
        self._ends.retain(n.node_id for n in self._nodes)
        self._give_up_lost_launches(unheard, now)

    def _listed(self, provider: Provider, now: datetime) -> tuple[list[Node], frozenset[str]]:
        """Return the provider's living nodes, and its regions that did not answer.

        Raises ProviderError, and CatalogError for a node of an unknown instance type.
        """
        if Capability.KNOWN_NODES in provider.capabilities():
            known = self._known(provider)
            provider.restore_known_nodes(replace(n, pool=n.pool.uncommitted) for n in known)
        nodes = [self._as_launched(node) for node in provider.nodes(self._settings.owner)]
        notices = provider.notices(self._settings.owner)
        silent = _silent_regions(provider)
        self._silence.record_partial(provider, now)
        living = list(self._adopt(provider, nodes, now))
        self._ends.note_listed(living, now)
        self._note(notices, now)
        listed_ids = {n.node_id for n in nodes}
        self._close_missing(provider, listed_ids, silent, now)
        return [*living, *(n for n in self._known(provider) if n.node_id not in listed_ids)], silent

    def _as_launched(self, node: Node) -> Node:
        """Return the node in the pool that was requested, which a commitment may pay for, and at
        the account's price. Providers know neither."""
        record = self._journal.records.get(node.job)
        if record is None:
            return node
        event = (
            record.live.get(node.node_id)
            or record.end_of(node.node_id)
            or record.intents.get(node.key)
        )
        pool = node.pool if event is None else Pool.parse(event.pool)
        return self._settings.account.price_terms.node(node, pool)

    def _keep(self, nodes: Iterable[Node]) -> None:
        self._nodes = tuple(nodes)
        self._by_job = {}
        for node in self._nodes:
            self._by_job.setdefault(node.job, []).append(node)

    def _adopt(self, provider: Provider, listed: Iterable[Node], now: datetime) -> Iterable[Node]:
        for node in listed:
            record = self._journal.records.get(node.job)
            if record is None:
                continue
            if node.node_id not in record.known or _has_run(node, record):
                event = node_launched_event(
                    self._world, node, self._emissions.signal(node.job), now
                )
                self._journal.write(event)
                self._emissions.cover(event, now)
            if node.state is NodeState.ENDED:
                if node.node_id in record.live or _is_news_of_end(node, record):
                    self._journal.write(self._ended(node, record, now))
                continue
            if node.node_id in record.lost:
                self._journal.write(
                    ev.NodeReturned(at=now, job=node.job, node_id=node.node_id, pool=str(node.pool))
                )
            if node.node_id in record.live:
                yield node
            elif self._gate.is_acting:
                _put_down(provider, node)

    def _ended(self, node: Node, record: JobRecord, now: datetime) -> ev.Event:
        estimated = node.end_is_estimate or node.ended_at is None
        ended_at = node.ended_at or now
        if estimated:
            estimate_at = self._ends.estimate(node.job, node.node_id, node.launched_at, now)
            ended_at = min(ended_at, estimate_at)
        cause, before = node.end_cause or EndCause.FAILED, record.end_of(node.node_id)
        if before is not None and estimated:
            ended_at = min(ended_at, before.ended_at)
        if cause is EndCause.INTERRUPTED and (before is None or before.cause is not cause):
            self._world.hazards.record_interruption(node.pool, ended_at)
        return ev.NodeEnded(
            at=now,
            job=node.job,
            node_id=node.node_id,
            pool=str(node.pool),
            ended_at=ended_at,
            cause=cause,
            message=untrusted_text(node.message),
            estimated=estimated or cause is EndCause.LOST,
        )

    def _note(self, notices: Iterable[Interruption], now: datetime) -> None:
        records = self._journal.records.values()
        living = {node_id: record for record in records for node_id in record.live}
        for notice in notices:
            record = living.get(notice.node_id)
            if record is not None and _is_news(notice, record):
                self._journal.write(
                    ev.InterruptionNoticed(
                        at=now,
                        job=record.name,
                        node_id=notice.node_id,
                        pool=str(notice.pool),
                        interrupts_at=notice.interrupts_at,
                    )
                )

    def _close_missing(
        self, provider: Provider, listed: set[str], silent: frozenset[str], now: datetime
    ) -> None:
        """Record that nodes which the provider no longer lists are lost; new ones may be invisible.

        Nothing is known of a region that does not answer. Until the provider reports the end, the
        last sign of life of a lost node counts as its end.
        """
        for record in self._journal.records.values():
            for node_id, event in list(record.live.items()):
                if node_id in listed:
                    continue
                pool = Pool.parse(event.pool)
                if pool.provider not in provider.names or region_key(pool) in silent:
                    continue
                age_s = (now - event.launched_at).total_seconds()
                if age_s >= self._settings.grace_s:
                    self._journal.write(
                        ev.NodeEnded(
                            at=now,
                            job=record.name,
                            node_id=node_id,
                            pool=event.pool,
                            ended_at=self._ends.estimate(
                                record.name, node_id, event.launched_at, now
                            ),
                            cause=EndCause.LOST,
                            estimated=True,
                        )
                    )

    def _give_up_lost_launches(self, unheard: set[str], now: datetime) -> None:
        """Fail lost launches, except at unreachable providers and regions: they may have them."""
        for record in self._journal.records.values():
            for key, intent in list(record.intents.items()):
                pool = Pool.parse(intent.pool)
                if not unheard.isdisjoint({pool.provider, region_key(pool)}):
                    continue
                if (now - intent.at).total_seconds() >= self._settings.grace_s:
                    self._journal.write(
                        ev.LaunchFailed(
                            at=now,
                            job=record.name,
                            key=key,
                            pool=intent.pool,
                            error="lost",
                            message="the provider's answer was lost and none of its nodes appeared",
                        )
                    )

    def _known(self, provider: Provider) -> Iterable[Node]:
        """Return the nodes of the provider that live by the ledger, as they were last seen."""
        seen = {n.node_id: n for n in self._nodes}
        for record in self._journal.records.values():
            for node_id, event in record.live.items():
                node = seen.get(node_id) or self._remembered(event)
                if node.pool.provider in provider.names:
                    yield node

    def _remembered(self, event: ev.NodeLaunched) -> Node:
        return Node(
            node_id=event.node_id,
            owner=self._settings.owner,
            job=event.job,
            pool=Pool.parse(event.pool),
            key=event.key,
            state=NodeState.WAITING if event.waiting else NodeState.RUNNING,
            launched_at=event.launched_at,
            usd_per_hour=event.micros_per_hour / MICROS,
        )


def _is_news(notice: Interruption, record: JobRecord) -> bool:
    """Return whether the provider has not confirmed this interruption before."""
    return notice.node_id not in record.noticed or notice.node_id in record.unconfirmed


def _silent_regions(provider: Provider) -> frozenset[str]:
    """Return the unreachable regions as "provider/region"."""
    if Capability.PARTIAL_FAILURES not in provider.capabilities():
        return frozenset()
    regions = provider.unreachable_regions()
    return frozenset(f"{name}/{region}" for name in provider.names for region in regions)


def _is_news_of_end(node: Node, record: JobRecord) -> bool:
    """Return whether the provider reports when, or only how, a node ended whose end in the ledger
    is an estimate."""
    before = record.end_of(node.node_id)
    if before is None or node.end_cause is EndCause.LOST:
        return False
    has_time = node.ended_at is not None and not node.end_is_estimate
    return has_time or before.cause is EndCause.LOST


def _has_run(node: Node, record: JobRecord) -> bool:
    """Return whether a node that waited for capacity runs, or has ended and may have run.

    The provider does not report the start of a node that ran and ended unobserved: it counts from
    its launch.
    """
    known = record.live.get(node.node_id)
    if known is None or not known.waiting or node.state is NodeState.WAITING:
        return False
    ended_waiting = node.end_cause is EndCause.NO_CAPACITY or node.node_id in record.releasing
    return node.state is not NodeState.ENDED or not ended_waiting


def _put_down(provider: Provider, node: Node) -> None:
    """Terminate a node that is listed as living although its end was reported."""
    try:
        provider.terminate(node.node_id)
    except ProviderError:
        return


def node_launched_event(
    world: World, node: Node, carbon_signal: CarbonSignal, now: datetime
) -> ev.NodeLaunched:
    """Return the event for a node that the provider confirms."""
    power, paid = world.powers.node_power(node.pool, carbon_signal), node.account_price
    volume_usd = volume_usd_per_hour(node.pool, world.transfers)
    return ev.NodeLaunched(
        at=now,
        job=node.job,
        key=node.key,
        node_id=node.node_id,
        pool=str(node.pool),
        launched_at=node.launched_at,
        micros_per_hour=to_micros(node.usd_per_hour),
        idle_w=None if power is None else power.idle_w,
        busy_w=None if power is None else power.busy_w,
        pue=None if power is None else power.pue,
        gco2e_per_kwh=None if power is None else power.gco2e_per_kwh,
        energy_basis=UNKNOWN_BASIS if power is None else power.basis.value,
        waiting=node.state is NodeState.WAITING or node.end_cause is EndCause.NO_CAPACITY,
        carbon_signal=carbon_signal,
        communication_share=0.0 if power is None else power.communication_share,
        embodied_gco2e_per_hour=None if power is None else power.embodied_gco2e_per_hour,
        list_micros_per_hour=listed_micros(paid),
        contracted_micros_per_hour=to_micros(
            None if paid is None else paid.contracted_usd_per_hour
        ),
        committed_micros_per_hour=committed_micros(paid),
        commitment=None if paid is None else paid.commitment,
        volume_micros_per_hour=to_micros(volume_usd),
    )


MAX_LEAD = timedelta(minutes=2)
"""Maximum notice period of the supported clouds: EC2 interrupts a spot node two minutes after it
(EC2 User Guide, "Spot Instance interruption notices"), Compute Engine after 30 s or two minutes."""
MAX_DELAY = timedelta(minutes=3)
"""A node that lives this much longer than announced is not being interrupted."""


def notice_news(
    record: JobRecord, node: ev.NodeLaunched, report: NodeReport, now: datetime
) -> Iterable[ev.Event]:
    """Yield the event of a notice that only the node reports or withdraws, once in its life."""
    node_id = node.node_id
    if report.interrupts_at is None:
        if node_id in record.unconfirmed and node_id not in record.draining:
            yield ev.NoticeWithdrawn(at=now, job=record.name, node_id=node_id, pool=node.pool)
    elif node_id not in record.noticed and node_id not in record.disbelieved:
        yield ev.InterruptionNoticed(
            at=now,
            job=record.name,
            node_id=node_id,
            pool=node.pool,
            interrupts_at=min(report.interrupts_at, now + MAX_LEAD),
            confirmed=False,
        )


def outlived(record: JobRecord, now: datetime) -> Iterable[str]:
    """Yield nodes that live past their announced interruption, by either source of the notice."""
    return (n for n, interrupts_at in record.noticed.items() if interrupts_at + MAX_DELAY <= now)


def resting_pools(record: JobRecord, cooldown: timedelta, now: datetime) -> Iterable[Pool]:
    """Yield the pools that only this job avoids, as one of its nodes there reported a notice."""
    return (pool for pool, since in record.resting_from.items() if since + cooldown > now)
