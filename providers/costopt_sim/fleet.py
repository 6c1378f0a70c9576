"""The nodes of a simulated cloud, their launch prices, and when the market interrupts them.

Time is advanced lazily: every query first plays the recorded market up to its instant, in the order
of the recorded changes. What happens therefore depends on the recorded market and on when nodes
were launched and released, never on how often a caller asks.

A node may have a process besides its record. A launch has a price, or a reason why it is refused.
A cursor reads one pool's recorded market forwards in constant time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import RLock
from typing import Protocol

from costopt.domain.errors import BadRequestError, NoCapacityError, ProviderError
from costopt.domain.fleet import SIMULATED_NODE, EndCause, LaunchRequest, Node, NodeState
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import CapacityType, Interruption, Pool
from costopt.domain.notices import notice_period
from costopt_sim.flex_start import FlexStartQueue
from costopt_sim.node_slices import NodeSlices

LAUNCH_ABORTED = "its launch was cut short"
KEEP_ENDED = timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class ScheduledEnd:
    """When a node ends or ended; with ``notice`` of it if interrupted, else None."""

    at: datetime
    notice: timedelta | None


class SimFleet:
    """Nodes in the pools of one market, safe to share between threads. Interruptions are announced
    ``notice_s`` before, for None as long before as the pool's provider does."""

    def __init__(
        self,
        market: MarketHistory,
        notice_s: float | None = None,
        host: NodeProcessHost | None = None,
    ) -> None:
        self.market = market
        self.cursors = {pool: PoolCursor(history) for pool, history in market.pools.items()}
        self.version = 0
        """Grows whenever a node appears, is announced to end, or ends."""
        self.notice_s = notice_period(notice_s)
        self._host = host
        self._lock = RLock()
        self._nodes: dict[str, Node] = {}
        self._by_key: dict[str, tuple[str, ...]] = {}
        self._alive: dict[Pool, list[str]] = {}
        self._noticed: dict[str, Interruption] = {}
        self._endings: dict[str, ScheduledEnd] = {}
        self._listed: dict[str, tuple[int, datetime, tuple[Node, ...]]] = {}
        self._scan_from: dict[Pool, datetime] = {}
        self._next_scan = self._next_interruption_at = END_OF_TIME
        self._flex = FlexStartQueue(market, self.running)
        self._slices = NodeSlices(market)

    def advance(self, now: datetime) -> None:
        """Play the record up to ``now``: announce, strike, start and end what is due."""
        with self._lock:
            for node_id, ends_at in self._flex.over(now):
                self._end(node_id, ends_at, EndCause.RELEASED, "its longest run is over")
            self._serve(now)
            if now >= self._next_scan:
                self._announce(now)
            if now >= self._next_interruption_at:
                self._interrupt(now)

    def launch(self, request: LaunchRequest, now: datetime) -> tuple[Node, ...]:
        """All nodes or none. Raises BadRequestError, NoCapacityError (also in a gap)."""
        with self._lock:
            self.advance(now)
            if (known := self._by_key.get(request.key)) is not None:
                if len(known) >= request.nodes:
                    return tuple(self._nodes[node_id] for node_id in known)
                self._undo(known, now)
            nodes = self._planned(request, launch_price(self.market, request, now), now)
            if request.nodes <= (self.free(request.pool, now) or 0):
                self._start(nodes)
            elif request.pool.capacity_type is CapacityType.FLEX_START:
                nodes = tuple(replace(node, state=NodeState.WAITING) for node in nodes)
                self._start_process(nodes)
                self._flex.wait(nodes)
            else:
                raise NoCapacityError(
                    f"{request.pool}: {request.nodes} nodes wanted, "
                    f"{self.free(request.pool, now)} free at {now:%Y-%m-%d %H:%M:%S} UTC"
                )
            self._nodes |= {node.node_id: node for node in nodes}
            self._by_key[request.key] = tuple(node.node_id for node in nodes)
            self.version += 1
            self._scan_again(request.pool, now)
            return nodes

    def adopt(self, nodes: tuple[Node, ...], interruptions: tuple[Interruption, ...]) -> None:
        """Take over what an earlier fleet launched, in launch order, with its announced ends.

        The record is played again from the first of these launches, so that a change while no
        controller ran interrupts its nodes now, at the time at which it was due.
        """
        with self._lock:
            for node in nodes:
                self._nodes[node.node_id] = node
                if node.message != LAUNCH_ABORTED:
                    self._by_key[node.key] = (*self._by_key.get(node.key, ()), node.node_id)
                if node.state is NodeState.WAITING:
                    self._flex.wait((node,))
                elif node.state.is_alive:
                    self._live((node,))
                    self._watch_from(node.pool, node.launched_at)
            self._noticed |= {notice.node_id: notice for notice in interruptions}
            self._next_interruption_at = min(
                (d.interrupts_at for d in self._noticed.values()), default=END_OF_TIME
            )
            self.version += 1

    def terminate(self, node_id: str, now: datetime) -> None:
        """Release a node at ``now``; silent where it is missing or has ended."""
        with self._lock:
            self.advance(now)
            if node_id in self._nodes and self._nodes[node_id].state.is_alive:
                self._end(node_id, now, EndCause.RELEASED)

    def fail(self, node_id: str, at: datetime, message: str) -> None:
        """Record that the node's process failed at ``at``; ignore a missing or ended node."""
        with self._lock:
            self.advance(at)
            if node_id in self._nodes and self._nodes[node_id].state.is_alive:
                self._end(node_id, at, EndCause.FAILED, message)

    def nodes(self, owner: str, now: datetime) -> tuple[Node, ...]:
        """Nodes with this owner tag in launch order; ended ones drop out after two hours."""
        with self._lock:
            self.advance(now)
            version, stale_at, listed = self._listed.get(owner, (-1, END_OF_TIME, ()))
            if version == self.version and now < stale_at:
                return listed
            return self._list(owner, now)

    def notices(self, owner: str, now: datetime) -> tuple[Interruption, ...]:
        """Return the pending interruptions announced by ``now``, by their time."""
        with self._lock:
            self.advance(now)
            noticed = (i for i in self._noticed.values() if self._nodes[i.node_id].owner == owner)
            return tuple(sorted(noticed, key=lambda i: (i.interrupts_at, i.node_id)))

    def ending(self, node_id: str) -> ScheduledEnd | None:
        """How the node ends or ended, as far as it is known by now."""
        with self._lock:
            if (notice := self._noticed.get(node_id)) is not None:
                return ScheduledEnd(notice.interrupts_at, _notice_of(notice))
            return self._endings.get(node_id)

    def running(self, pool: Pool) -> int:
        """How many nodes live in ``pool``."""
        return len(self._alive.get(pool, ()))

    def living(self, pool: Pool) -> list[Node]:
        """The nodes that run in ``pool``."""
        return [self._nodes[node_id] for node_id in self._alive.get(pool, ())]

    def free(self, pool: Pool, now: datetime) -> int | None:
        """How many more nodes the pool carries; None where the record does not tell."""
        state = self.cursors[pool].at(now)
        if state is None or state.nodes_available is None:
            return None
        if pool in self._slices:
            return self._slices.free(pool, self.running)
        return max(state.nodes_available - self.running(pool), 0)

    def _planned(
        self, request: LaunchRequest, price_usd_per_hour: float, now: datetime
    ) -> tuple[Node, ...]:
        """The nodes as they are if they start at once."""
        first = len(self._nodes) + 1
        return tuple(
            Node(
                node_id=f"{SIMULATED_NODE}{number:04d}",
                owner=request.owner,
                job=request.job,
                pool=request.pool,
                key=request.key,
                state=NodeState.RUNNING,
                launched_at=now,
                usd_per_hour=price_usd_per_hour,
            )
            for number in range(first, first + request.nodes)
        )

    def _serve(self, now: datetime) -> None:
        """Start the nodes that have waited for room, at the price of then; let the others go."""
        for served in self._flex.served(now):
            if not served.starts:
                for node_id in served.node_ids:
                    self._end(node_id, served.at, EndCause.NO_CAPACITY, "no room came in time")
                continue
            waited = [self._nodes[node_id] for node_id in served.node_ids]
            state = self.cursors[waited[0].pool].at(served.at)
            usd = None if state is None else state.price_usd_per_hour
            nodes = tuple(
                replace(
                    node,
                    state=NodeState.RUNNING,
                    launched_at=served.at,
                    usd_per_hour=node.usd_per_hour if usd is None else usd,
                )
                for node in waited
            )
            try:
                self._start(nodes)
            except ProviderError as error:
                for node in waited:
                    self._end(node.node_id, served.at, EndCause.FAILED, error.message)
                continue
            self._nodes |= {node.node_id: node for node in nodes}
            self.version += 1

    def _start(self, nodes: tuple[Node, ...]) -> None:
        self._start_process(nodes)
        self._live(nodes)

    def _live(self, nodes: tuple[Node, ...]) -> None:
        """They run, all from the same instant."""
        pool, node_ids = nodes[0].pool, tuple(node.node_id for node in nodes)
        self._alive.setdefault(pool, []).extend(node_ids)
        if pool.capacity_type is CapacityType.FLEX_START:
            self._flex.start(node_ids, nodes[0].launched_at)

    def _start_process(self, nodes: tuple[Node, ...]) -> None:
        """Tell the host of all of them, or of none."""
        if self._host is None:
            return
        started: list[Node] = []
        try:
            for node in nodes:
                waits = node.state is NodeState.WAITING
                (self._host.wait if waits else self._host.start)(node)
                started.append(node)
        except BaseException:
            for node in started:
                self._host.stop(
                    replace(
                        node,
                        state=NodeState.ENDED,
                        ended_at=node.launched_at,
                        end_cause=EndCause.FAILED,
                    )
                )
            raise

    def _undo(self, known: tuple[str, ...], now: datetime) -> None:
        """A controller died half-way through this launch: all nodes or none."""
        for node_id in known:
            if self._nodes[node_id].state.is_alive:
                self._end(node_id, now, EndCause.FAILED, LAUNCH_ABORTED)

    def _watch_from(self, pool: Pool, start: datetime) -> None:
        if pool.capacity_type.is_interruptible:
            self._scan_from[pool] = min(self._scan_from.get(pool, start), start)
            self._next_scan = min(self._next_scan, start)

    def _scan_again(self, pool: Pool, now: datetime) -> None:
        """New nodes share the fate of a drop that was announced before they came."""
        if pool.capacity_type.is_interruptible:
            self._scan_from[pool] = now
            self._next_scan = min(self._next_scan, self._next_announcement(pool, now))
            self.advance(now)

    def _notice(self, pool: Pool) -> timedelta:
        return timedelta(seconds=self.notice_s(pool))

    def _next_announcement(self, pool: Pool, after: datetime) -> datetime:
        """When the pool's first change after an instant is to be announced."""
        return self.cursors[pool].next_change_after(after) - self._notice(pool)

    def _announce(self, now: datetime) -> None:
        self._next_scan = END_OF_TIME
        for pool in list(self._scan_from):
            if not self._alive[pool]:
                del self._scan_from[pool]
                continue
            horizon = now + self._notice(pool)
            for state in self._changes(pool, horizon):
                self._schedule_interruptions(pool, state)
            self._scan_from[pool] = horizon
            self._next_scan = min(self._next_scan, self._next_announcement(pool, horizon))

    def _changes(self, pool: Pool, horizon: datetime) -> Iterator[MarketState]:
        return self.market.pools[pool].between(self._scan_from[pool], horizon)

    def _schedule_interruptions(self, pool: Pool, state: MarketState) -> None:
        """The newest nodes beyond the capacity are taken; a gap in the record takes none."""
        if state.nodes_available is None:
            return
        interrupts_at = state.starts_at
        staying = [node_id for node_id in self._alive[pool] if self._stays(node_id, interrupts_at)]
        for node_id in staying[state.nodes_available :]:
            noticed_at = max(interrupts_at - self._notice(pool), self._nodes[node_id].launched_at)
            self._noticed[node_id] = Interruption(node_id, pool, noticed_at, interrupts_at)
            self._next_interruption_at = min(self._next_interruption_at, interrupts_at)
            self.version += 1
            if self._host is not None:
                self._host.notice(self._noticed[node_id])

    def _stays(self, node_id: str, until: datetime) -> bool:
        if self._nodes[node_id].launched_at > until:
            return False
        return node_id not in self._noticed or self._noticed[node_id].interrupts_at > until

    def _interrupt(self, now: datetime) -> None:
        due = [i for i in self._noticed.values() if i.interrupts_at <= now]
        for interruption in sorted(due, key=lambda i: (i.interrupts_at, i.node_id)):
            notice_s = _notice_of(interruption).total_seconds()
            message = f"taken by the market, announced {notice_s:g} s before"
            self._end(
                interruption.node_id, interruption.interrupts_at, EndCause.INTERRUPTED, message
            )
        self._next_interruption_at = min(
            (i.interrupts_at for i in self._noticed.values()), default=END_OF_TIME
        )

    def _end(self, node_id: str, at: datetime, cause: EndCause, message: str = "") -> None:
        node = replace(
            self._nodes[node_id],
            state=NodeState.ENDED,
            ended_at=at,
            end_cause=cause,
            message=message,
        )
        waited = self._nodes[node_id].state is NodeState.WAITING
        self._nodes[node_id] = node
        self._flex.forget(node_id)
        if not waited:
            self._alive[node.pool].remove(node_id)
        notice = self._noticed.pop(node_id, None)
        interrupted = notice if cause is EndCause.INTERRUPTED else None
        self._endings[node_id] = ScheduledEnd(at, _notice_of(interrupted) if interrupted else None)
        self.version += 1
        if self._host is not None:
            self._host.stop(node)

    def _list(self, owner: str, now: datetime) -> tuple[Node, ...]:
        oldest = now - KEEP_ENDED
        listed = tuple(
            node
            for node in self._nodes.values()
            if node.owner == owner and (node.ended_at is None or node.ended_at > oldest)
        )
        ended = [node.ended_at for node in listed if node.ended_at is not None]
        stale_at = min(ended) + KEEP_ENDED if ended else END_OF_TIME
        self._listed[owner] = (self.version, stale_at, listed)
        return listed


def _notice_of(interruption: Interruption) -> timedelta:
    return interruption.interrupts_at - interruption.noticed_at


class NodeProcessHost(Protocol):
    """Gives nodes a body: process mode starts and kills something real. Called in order.

    Where it raises ProviderError for a node of a launch, the whole launch is undone.
    """

    def wait(self, node: Node) -> None:
        """The node was asked for, and waits for capacity without a body."""
        ...

    def start(self, node: Node) -> None:
        """The node was launched, or has waited long enough."""
        ...

    def notice(self, interruption: Interruption) -> None:
        """Announce to the node that it will be interrupted."""
        ...

    def stop(self, node: Node) -> None:
        """The node ended; ``end_cause`` says why."""
        ...


def launch_price(market: MarketHistory, request: LaunchRequest, now: datetime) -> float:
    """Dollars per hour of one node. Raises BadRequestError, NoCapacityError (in a gap)."""
    pool = request.pool
    if pool not in market.pools:
        raise BadRequestError(
            f"pool {pool} is not in market {market.name!r}",
            hint="launch only in pools that offers() lists",
        )
    if request.nodes < 1:
        raise BadRequestError(f"{pool}: a launch of {request.nodes} nodes")
    state = market.pools[pool].at(now)
    if state is None or state.nodes_available is None or state.price_usd_per_hour is None:
        raise NoCapacityError(
            f"{pool}: the market {market.name!r} records no capacity or no price at "
            f"{now:%Y-%m-%d %H:%M:%S} UTC",
            hint="a gap in the record is not guessed over; try another pool or later",
        )
    return state.price_usd_per_hour


BEGINNING_OF_TIME = datetime.min.replace(tzinfo=UTC)
END_OF_TIME = datetime.max.replace(tzinfo=UTC)


class PoolCursor:
    """``at(when)`` like PoolHistory.at, but without a search while the same state holds."""

    __slots__ = ("_from", "_history", "_starts", "_state", "_until")

    def __init__(self, history: PoolHistory) -> None:
        self._history = history
        self._starts = [state.starts_at for state in history.states]
        self._from = self._until = BEGINNING_OF_TIME
        self._state: MarketState | None = None

    def at(self, when: datetime) -> MarketState | None:
        """The state in force at ``when``, or None outside the record."""
        if not self._from <= when < self._until:
            self._seek(when)
        return self._state

    def next_change_after(self, when: datetime) -> datetime:
        """The first instant after ``when`` at which a recorded state begins, else NEVER."""
        index = bisect_right(self._starts, when)
        return self._starts[index] if index < len(self._starts) else END_OF_TIME

    def _seek(self, when: datetime) -> None:
        ends_at = self._history.ends_at
        if when >= ends_at:
            self._from, self._until, self._state = ends_at, END_OF_TIME, None
            return
        index = bisect_right(self._starts, when) - 1
        following = index + 1
        self._until = self._starts[following] if following < len(self._starts) else ends_at
        if index < 0:
            self._from, self._state = BEGINNING_OF_TIME, None
        else:
            self._from, self._state = self._starts[index], self._history.states[index]
