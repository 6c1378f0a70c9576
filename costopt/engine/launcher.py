"""Launches nodes: intents first, then the calls, then their outcomes.

Each of the three is one write to the ledger for many launches, as that takes no longer than for
one. Each write announces twice as many as the last, so that a slow provider that runs into the time
limit leaves not many more launches unanswered than it has answered.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile

from costopt.domain.errors import ProviderError, ProviderUnavailableError
from costopt.domain.events import LaunchFailed, LaunchIntended
from costopt.domain.events.node import NOT_SENT_ERROR
from costopt.domain.fleet import Launch, LaunchRequest, Node, NodeState
from costopt.domain.limits import Resource
from costopt.domain.market import Pool
from costopt.domain.money import MICROS, to_micros
from costopt.domain.policy import Limits
from costopt.domain.view import Desired
from costopt.engine.emissions import Emissions
from costopt.engine.fleet import node_launched_event
from costopt.engine.gate import Gate, Releases
from costopt.engine.guards import Guards, LaunchLimits
from costopt.engine.journal import Journal
from costopt.engine.quotas import GuardViolation, ResourceUsage, UsageTally
from costopt.engine.settings import EngineSettings, World

TOGETHER = 50
"""Intents of a tick's first write; if the controller dies, as many launches may have to be
requested again."""

LIMITS_ON_NEW_NODES = frozenset({"halt", "max_launches_per_hour", "account_max_launches_per_hour"})
"""Guards that do not depend on nodes."""


class Launcher:
    """Requests the launches that the guards allow, and repeats those that were never answered."""

    def __init__(
        self,
        world: World,
        journal: Journal,
        settings: EngineSettings,
        guards: Guards,
        gate: Gate,
        releases: Releases,
        emissions: Emissions,
    ) -> None:
        self._world = world
        self._journal = journal
        self._settings = settings
        self._guards = guards
        self._gate = gate
        self._releases = releases
        self._emissions = emissions
        self._began: tuple[datetime, float] | None = None
        self._unsent: set[str] = set()

    def launch(
        self,
        launches: Iterable[Launch],
        nodes: Sequence[Node],
        bounds: Mapping[str, LaunchLimits],
        now: datetime,
    ) -> LaunchResults:
        """Launch nodes. ``nodes`` are all living ones, ``bounds`` are by job; only pools that have
        a price there are used. No launch is announced in a pool that has refused."""
        left, done, together = deque(launches), LaunchResults(), TOGETHER
        tally = (
            self._guards.tally((*nodes, *self._coming(nodes, now)), now) if left else UsageTally()
        )
        while left and not self.is_overdue(now):
            announced = self._announce(left, together, done, tally, bounds, now)
            answers = self._ask(list(announced), bounds, now, fresh=True)
            together *= 2
            for intent, launch in announced.items():
                answer = answers.get(intent.key)
                self._count(intent, answer, tally)
                done.record(launch, answer)
        done.held.update(launch.job for launch in left)
        return done

    def retry_unanswered(
        self, desired: Desired, bounds: Mapping[str, LaunchLimits], now: datetime
    ) -> LaunchResults:
        """Repeat needed launches that were never answered, under their own idempotency keys.

        A launch that did happen returns the same nodes; one that did not, happens now. While
        launches are halted none is repeated. One that was never sent and is no longer needed fails.
        """
        done = LaunchResults()
        intents: list[LaunchIntended] = []
        for decision in desired.decisions:
            pools = {str(target.pool) for target in decision.targets}
            for intent in tuple(self._journal.records[decision.job].intents.values()):
                if intent.pool in pools:
                    intents.append(intent)
                else:
                    self._fail_unsent(intent, "cancelled: no longer needed before it was sent", now)
        for first in range(0, len(intents), TOGETHER):
            asked = intents[first : first + TOGETHER]
            answers = self._ask(asked, bounds, now, fresh=False)
            for intent in asked:
                launch = Launch(intent.job, Pool.parse(intent.pool), intent.nodes)
                done.record(launch, answers.get(intent.key))
        return done

    def is_overdue(self, now: datetime) -> bool:
        """Return whether the running nodes need the next tick more than new ones need this one."""
        max_s = self._settings.launch_s
        if max_s is None or self._began is None or self._began[0] != now:
            return False
        return time.monotonic() - self._began[1] >= max_s

    def _announce(
        self,
        left: deque[Launch],
        most: int,
        done: LaunchResults,
        tally: UsageTally,
        bounds: Mapping[str, LaunchLimits],
        now: datetime,
    ) -> dict[LaunchIntended, Launch]:
        """Record the intents of the next launches, at most ``most``, each checked as if those
        before it succeed. A gang over several pools is launched whole or not at all.

        Ends before one that a guard would then refuse: it is checked again once that is known.
        """
        announced: dict[LaunchIntended, Launch] = {}
        expected, halt = tally.copy(), self._gate.halt()
        with self._journal.batch():
            while left and len(announced) < most:
                launch, mine = left[0], bounds[left[0].job]
                usd = mine.prices.get(launch.pool)
                gang = tuple(takewhile(lambda each: each.job == left[0].job, left))
                if usd is None or launch.pool in done.refusing:
                    done.record(launch, LaunchRefused("its pool has no price, or has just refused"))
                elif refusal := halt or self._gang_refusal(gang, expected, mine, now):
                    if announced:
                        break
                    for each in gang:
                        self._refuse(each, refusal, tally, mine, done, now)
                    for _ in gang[1:]:
                        left.popleft()
                else:
                    announced[self._intend(launch, usd, expected, now)] = launch
                left.popleft()
        return announced

    def _gang_refusal(
        self, gang: Sequence[Launch], expected: UsageTally, mine: LaunchLimits, now: datetime
    ) -> GuardViolation | None:
        """Return the first guard's refusal if these launches of a job are all made, or None."""
        together = expected.copy() if len(gang) > 1 else expected
        for launch in gang:
            usd = mine.prices.get(launch.pool)
            if usd is None:
                continue
            refusal = self._guards.launch_refusal(launch, usd, together, mine)
            if refusal is not None:
                return refusal
            if launch is not gang[-1]:
                self._expect(_intent(launch, usd, "", now), together)
        return None

    def _expect(self, intent: LaunchIntended, tally: UsageTally) -> None:
        counted = self._guards.counted_nodes(Pool.parse(intent.pool), intent.nodes)
        tally.add(intent.job, ResourceUsage(launched=counted))
        self._guards.quotas.add_nodes(tally, _planned(intent))

    def _refuse(
        self,
        launch: Launch,
        refusal: GuardViolation,
        tally: UsageTally,
        mine: LaunchLimits,
        done: LaunchResults,
        now: datetime,
    ) -> None:
        """Record a guard's refusal; the job's running nodes are retained if launching is futile."""
        self._guards.check_spend(launch.job, refusal, now)
        done.refused[launch] = f"guard {refusal.guard}: {refusal.message}"
        runs = tally.of_job(launch.job).amount(Resource.NODES) > 0
        if runs and self._is_pointless(launch, refusal, tally, mine, now):
            done.held.add(launch.job)

    def _is_pointless(
        self,
        launch: Launch,
        refusal: GuardViolation,
        tally: UsageTally,
        mine: LaunchLimits,
        now: datetime,
    ) -> bool:
        """Return whether a launch would be refused even without the job's nodes elsewhere."""
        if refusal.guard in LIMITS_ON_NEW_NODES:
            return True
        others = [n for n in tally.nodes if n.job != launch.job or n.pool == launch.pool]
        freed, usd = self._guards.tally(others, now), mine.prices[launch.pool]
        return self._guards.launch_refusal(launch, usd, freed, mine) is not None

    def _intend(
        self, launch: Launch, usd: float, expected: UsageTally, now: datetime
    ) -> LaunchIntended:
        """Record the intent; ``expected`` counts its nodes in."""
        number = self._journal.records[launch.job].launch_count + 1
        intent = _intent(launch, usd, self._settings.new_key(launch.job, number), now)
        self._journal.write(intent)
        self._unsent.add(intent.key)
        self._expect(intent, expected)
        return intent

    def _count(
        self, intent: LaunchIntended, answer: LaunchAnswer | None, tally: UsageTally
    ) -> None:
        """Count the nodes that a launch has brought, or may have."""
        started = answer if isinstance(answer, tuple) else ()
        record = self._journal.records[intent.job]
        if intent.key in record.launches:
            counted = self._guards.counted_nodes(Pool.parse(intent.pool), intent.nodes)
            tally.add(intent.job, ResourceUsage(launched=counted))
        unknown = not started and intent.key in record.intents
        self._guards.quotas.add_nodes(tally, _planned(intent) if unknown else started)

    def _coming(self, nodes: Sequence[Node], now: datetime) -> Iterator[Node]:
        """Yield nodes that launches of this tick may have brought whose answers were lost, until
        the next listing settles it."""
        seen = {node.key for node in nodes}
        for record in self._journal.records.values():
            for intent in record.intents.values():
                if intent.at == now and intent.key not in seen:
                    yield from _planned(intent)

    def _ask(
        self,
        intents: Sequence[LaunchIntended],
        bounds: Mapping[str, LaunchLimits],
        now: datetime,
        *,
        fresh: bool,
    ) -> dict[str, LaunchAnswer | None]:
        """Return the answers by key; postponed launches have none.

        A launch that a halt precedes is refused where it was never sent, and has no answer
        otherwise.

        A pool that refuses gets no further requests, unless launches are not ``fresh``: they may
        have happened when they were first requested.
        """
        answers: dict[str, LaunchAnswer | None] = {}
        refusals: dict[str, ProviderError] = {}
        with self._journal.batch():
            for intent in intents:
                if self.is_overdue(now):
                    break
                refusal = refusals.get(intent.pool) if fresh else None
                if (halt := self._gate.halt()) is not None:
                    why = f"{halt.message}, before it was sent"
                    answers[intent.key] = self._fail_unsent(intent, why, now)
                elif refusal is not None:
                    message = f"not requested, as its pool has just refused: {refusal.message}"
                    answers[intent.key] = self._failed(intent, refusal.code, message, now)
                else:
                    answers[intent.key] = self._call(intent, refusals, now)
        for intent in intents:
            started = answers.get(intent.key)
            if isinstance(started, tuple):
                limits = bounds[intent.job].limits
                answers[intent.key] = self._terminate_mispriced(started, intent, limits, now)
        return answers

    def _call(
        self, intent: LaunchIntended, refusals: dict[str, ProviderError], now: datetime
    ) -> LaunchAnswer:
        if self._began is None or self._began[0] != now:
            self._began = now, time.monotonic()
        self._unsent.discard(intent.key)
        pool = Pool.parse(intent.pool)
        request = LaunchRequest(
            self._settings.owner, intent.job, pool.uncommitted, intent.nodes, intent.key
        )
        try:
            listed = self._world.provider_of(pool).launch(request)
        except ProviderUnavailableError:
            return ()
        except ProviderError as error:
            refusals[intent.pool] = error
            return self._failed(intent, error.code, error.message, now)
        terms = self._settings.account.price_terms
        started = [terms.node(node, pool) for node in listed]
        known = self._journal.records[intent.job].known
        fresh = tuple(node for node in started if node.node_id not in known)
        signal = self._emissions.signal(intent.job)
        self._journal.write(
            *(node_launched_event(self._world, node, signal, now) for node in fresh)
        )
        return fresh

    def _fail_unsent(self, intent: LaunchIntended, why: str, now: datetime) -> LaunchRefused | None:
        """Fail a launch that was certainly never sent, without blaming its pool; else None."""
        return (
            self._failed(intent, NOT_SENT_ERROR, why, now) if intent.key in self._unsent else None
        )

    def _failed(
        self, intent: LaunchIntended, error: str, message: str, now: datetime
    ) -> LaunchRefused:
        self._unsent.discard(intent.key)
        self._journal.write(
            LaunchFailed(
                at=now,
                job=intent.job,
                key=intent.key,
                pool=intent.pool,
                error=error,
                message=message,
            )
        )
        return LaunchRefused(f"{error}: {message}", by_pool=error != NOT_SENT_ERROR)

    def _terminate_mispriced(
        self, started: tuple[Node, ...], intent: LaunchIntended, limits: Limits, now: datetime
    ) -> LaunchAnswer:
        """Return the nodes, or a refusal if they exceed the planned price and are terminated."""
        planned = intent.planned_micros_per_hour / MICROS
        most = None if limits.max_price_ratio is None else planned * limits.max_price_ratio
        dear = [n for n in started if most is not None and n.usd_per_hour > most]
        if not dear:
            return started
        message = (
            f"{dear[0].pool} was planned at ${planned:.4f}/h but costs "
            f"${dear[0].usd_per_hour:.4f}/h; its nodes are terminated"
        )
        self._guards.check_spend(
            intent.job, GuardViolation("max_price_ratio", message, intent.pool), now
        )
        reasons = {node.node_id: "more expensive than planned" for node in started}
        self._releases.release(intent.job, reasons, now)
        return LaunchRefused(f"guard max_price_ratio: {message}")


def _intent(launch: Launch, usd: float, key: str, now: datetime) -> LaunchIntended:
    return LaunchIntended(
        at=now,
        job=launch.job,
        key=key,
        pool=str(launch.pool),
        nodes=launch.nodes,
        planned_micros_per_hour=to_micros(usd),
    )


def _planned(intent: LaunchIntended) -> Iterator[Node]:
    """Yield the nodes that the launch is to bring."""
    for number in range(intent.nodes):
        yield Node(
            node_id=f"{intent.key}/{number}",
            owner="",
            job=intent.job,
            pool=Pool.parse(intent.pool),
            key=intent.key,
            state=NodeState.PENDING,
            launched_at=intent.at,
            usd_per_hour=intent.planned_micros_per_hour / MICROS,
        )


@dataclass(frozen=True, slots=True)
class LaunchRefused:
    """What refused a launch, and why; with ``by_pool`` its pool gets no further requests."""

    why: str
    by_pool: bool = True


LaunchAnswer = tuple[Node, ...] | LaunchRefused
"""The new nodes, () while that is unknown."""


@dataclass(slots=True)
class LaunchResults:
    """New nodes, pools that refused, and jobs that drain nothing now: a launch of theirs was
    refused or postponed, so they decide again first, or waits for capacity, or a guard would refuse
    it in any case. ``refused`` says what refused each launch, and why."""

    nodes: list[Node] = field(default_factory=list)
    refusing: set[Pool] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    refused: dict[Launch, str] = field(default_factory=dict)

    def record(self, launch: Launch, answer: LaunchAnswer | None) -> None:
        """Record the outcome of one more launch; None where it was postponed."""
        if isinstance(answer, LaunchRefused):
            self.refused[launch] = answer.why
            if answer.by_pool:
                self.refusing.add(launch.pool)
        elif answer is not None:
            self.nodes += answer
            if all(node.state is not NodeState.WAITING for node in answer):
                return
        self.held.add(launch.job)
