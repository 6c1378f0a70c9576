"""The usable part of the market at one tick, and why the rest is excluded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from costopt.domain.account_price import committed_micros, listed_micros
from costopt.domain.errors import ProviderError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.events import PriceChanged
from costopt.domain.fleet import Node
from costopt.domain.job import Job, Resources
from costopt.domain.market import Offer, Pool
from costopt.domain.money import to_micros
from costopt.domain.plan import COOLDOWN, Rejection
from costopt.domain.policy import Policy
from costopt.engine.failures import ProviderFailures
from costopt.engine.journal import Journal
from costopt.engine.settings import EngineSettings, World
from costopt.market.screening import screen_offers


class OfferCollector:
    """Collects the providers' offers, learns hazards from them and screens them."""

    def __init__(
        self,
        world: World,
        journal: Journal,
        settings: EngineSettings,
        silence: ProviderFailures,
        jobs: Mapping[str, Job],
    ) -> None:
        self._world = world
        self._jobs = jobs
        self._journal = journal
        self._settings = settings
        self._silence = silence
        self._cooling: Mapping[Pool, datetime] = {}
        self._wanted: frozenset[Resources] = frozenset()
        self.latest: tuple[Offer, ...] = ()

    def observe(self, nodes: Sequence[Node], now: datetime) -> None:
        """Ask every provider for its offers, and learn prices and hazards from them.

        Each job's record is read here once, and not again for each policy.
        """
        offers = self._settings.account.price_terms.offers(self._ask(now), nodes, now)
        here = {node.pool for node in nodes}
        self._world.hazards.observe(offers, now, here)
        self._note_prices(offers, nodes, now)
        self.latest = tuple(self._with_estimates(offer, offer.pool in here) for offer in offers)
        self._cooling = self._cooling_at(now)
        records = self._journal.records.items()
        # There are far fewer kinds of resources than jobs that request them.
        self._wanted = frozenset(self._jobs[name].resources for name, r in records if not r.over)

    def usable(
        self,
        policy: Policy,
        nodes: Sequence[Node],
        now: datetime,
        refused: frozenset[Pool] = frozenset(),
    ) -> tuple[tuple[Offer, ...], tuple[Rejection, ...]]:
        """Return the latest offers that may be used, and why the others may not.

        A pool in cooldown, or one that has just ``refused`` a launch, has no capacity now but may
        be planned on for later. Spot that does not say its room may have half of what it refused to
        a job whose gang may be in several zones. Uninterruptible capacity is not put in cooldown
        where some job has no alternative: capacity that meets a deadline is requested again at
        every tick. A pool where nodes run stays among the offers, without capacity for more,
        whatever its price: running nodes are retained.
        """
        screened, rejections = screen_offers(self.latest, policy, now)
        cooling = {**self._cooling}
        for pool in self._fallback_offers(screened, refused.union(cooling)):
            cooling.pop(pool, None)
        usable = [
            self._without_room(offer) if offer.pool in refused or offer.pool in cooling else offer
            for offer in screened
        ]
        kept = self._kept(usable, nodes, policy)
        return (*usable, *kept), (*rejections, *_why_cooling(screened, cooling))

    def _ask(self, now: datetime) -> list[Offer]:
        offers: list[Offer] = []
        for provider in self._world.providers:
            try:
                offers += provider.offers(now)
                self._silence.ended(provider, "offers")
            except ProviderError as error:
                self._silence.is_failing(provider, "offers", error, now)
        return offers

    def _with_estimates(self, offer: Offer, running: bool) -> Offer:
        """Return the offer with hazard and availability as the provider states them, else learned.

        A hazard that the provider states as a prior is already part of the learned one, and where
        one of our nodes runs, a prior of availability is superseded. A pool that has capacity now
        is trusted until it has none: its hazard says how long that lasts, and the learned
        probability of its absence would count against it twice.
        """
        hazards = self._world.hazards
        availability = offer.availability
        if running and availability is not None and availability.basis is Basis.PRIOR:
            availability = None
        if availability is None and offer.nodes_available == 0 and not running:
            availability = hazards.availability(offer.pool)
        hazard = offer.hazard_per_hour
        if hazard is None or hazard.basis is Basis.PRIOR:
            hazard = hazards.hazard_per_hour(offer.pool) or hazard
        return replace(offer, hazard_per_hour=hazard, availability=availability)

    def _note_prices(self, offers: Iterable[Offer], nodes: Sequence[Node], now: datetime) -> None:
        """Record prices; one older than the launch of a node does not apply to that node."""
        running: dict[Pool, dict[str, datetime]] = {}
        for node in nodes:
            jobs = running.setdefault(node.pool, {})
            jobs[node.job] = max(node.launched_at, jobs.get(node.job, node.launched_at))
        for offer in offers:
            price = offer.price_usd_per_hour
            if price is None or offer.pool not in running or not _is_price(price):
                continue
            micros, pool = to_micros(price.value), str(offer.pool)
            paid = offer.account_price
            for job, launched_at in running[offer.pool].items():
                newer = price.observed_at is None or price.observed_at >= launched_at
                if newer and self._journal.records[job].prices[pool] != micros:
                    self._journal.write(
                        PriceChanged(
                            at=now,
                            job=job,
                            pool=pool,
                            micros_per_hour=micros,
                            list_micros_per_hour=listed_micros(paid),
                            committed_micros_per_hour=committed_micros(paid),
                        )
                    )

    def _without_room(self, offer: Offer) -> Offer:
        availability = offer.availability or self._world.hazards.availability(offer.pool)
        refused: list[int] = []
        if offer.nodes_available is None and offer.pool.capacity_type.is_interruptible:
            refused = [
                record.refused_nodes[offer.pool]
                for name, record in self._journal.records.items()
                if offer.pool in record.refused_nodes
                and self._jobs[name].resources.zone_traffic_gib is not None
            ]
        room = min(refused, default=0) // 2
        return replace(offer, nodes_available=room, availability=availability)

    def _cooling_at(self, now: datetime) -> dict[Pool, datetime]:
        cooldown = timedelta(seconds=self._settings.cooldown_s)
        cooling: dict[Pool, datetime] = {}
        for record in self._journal.records.values():
            for pool, since in record.cooldown_from.items():
                if since + cooldown > now:
                    cooling[pool] = max(since + cooldown, cooling.get(pool, now))
        return cooling

    def _fallback_offers(
        self, offers: Iterable[Offer], left_alone: frozenset[Pool]
    ) -> frozenset[Pool]:
        """Return uninterruptible pools short of capacity, of jobs without an alternative now."""
        firm = [offer for offer in offers if offer.pool.capacity_type.is_uninterruptible]
        closed = left_alone.intersection(offer.pool for offer in firm)
        short = {pool for pool in closed if self._is_short(pool)}
        if not short:
            return frozenset()
        found: set[Pool] = set()
        for resources in self._wanted:
            fit = [offer for offer in firm if self._fits(resources, offer.pool)]
            if all(o.pool in left_alone or o.nodes_available == 0 for o in fit):
                found.update(o.pool for o in fit)
        return frozenset(found & short)

    def _fits(self, resources: Resources, pool: Pool) -> bool:
        machine = self._world.machines.instance_type(pool)
        return machine is not None and resources.rejection_reason(machine) is None

    def _is_short(self, pool: Pool) -> bool:
        """Return whether every job that avoids the pool does so because it had no capacity."""
        records = [r for r in self._journal.records.values() if pool in r.cooldown_from]
        return all(pool in record.short_of_capacity for record in records)

    def _kept(
        self, usable: Iterable[Offer], nodes: Sequence[Node], policy: Policy
    ) -> tuple[Offer, ...]:
        there = {offer.pool for offer in usable}
        missing = {n.pool: n for n in nodes if n.pool not in there}
        return tuple(
            Offer(
                pool=pool,
                price_usd_per_hour=Estimate.exact(
                    node.usd_per_hour, Basis.MEASURED, "price at launch"
                ),
                hazard_per_hour=self._world.hazards.hazard_per_hour(pool),
                nodes_available=0,
            )
            for pool, node in missing.items()
            if policy.limits.rejection_reason(pool) is None
        )


def _why_cooling(offers: Iterable[Offer], cooling: Mapping[Pool, datetime]) -> Iterable[Rejection]:
    """Yield rejections of the pools known to have capacity; the others are short in any case."""
    return (
        Rejection(
            offer.pool,
            COOLDOWN,
            f"refused or took a node; left alone until {cooling[offer.pool]:%Y-%m-%d %H:%M:%S} UTC",
        )
        for offer in offers
        if offer.pool in cooling and offer.nodes_available != 0
    )


def _is_price(price: Estimate) -> bool:
    return math.isfinite(price.value) and price.value > 0
