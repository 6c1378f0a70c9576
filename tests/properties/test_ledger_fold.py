"""The folds hold their laws for every order of events that an engine can record."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.domain.events import (
    CarbonIntensityRecorded,
    Event,
    GangFormed,
    NodeEnded,
    NodeLaunched,
    NodeMeasured,
    NodeReturned,
    PriceChanged,
    TrainingStarted,
    TrainingStopped,
)
from costopt.domain.fleet import EndCause
from costopt.domain.policy import CarbonSignal
from costopt.ledger.job_account import JobAccount
from tests.support.known_figure import known

START = datetime(2026, 1, 1, tzinfo=UTC)
POOLS = ("aws/r/a/t/spot", "aws/r/b/t/on_demand")
HOUR_MS = 3_600_000
HOUR = timedelta(hours=1)
STEPS = (
    "launch", "adopt", "end", "end_late", "return", "correct", "price", "gang", "train", "stop",
    "wait", "measure", "intensity",
)  # fmt: skip


def at(ms: int) -> datetime:
    return START + timedelta(milliseconds=ms)


@dataclass
class Recorder:
    """Draws one allowed event after another; the clock never goes back."""

    draw: st.DrawFn
    now_ms: int = 0
    events: list[Event] = field(default_factory=list)
    alive: dict[str, NodeLaunched] = field(default_factory=dict)
    lost: dict[str, NodeLaunched] = field(default_factory=dict)
    measured: dict[str, NodeMeasured] = field(default_factory=dict)
    launched: int = 0
    generation: int = 0
    training: bool = False

    def step(self) -> None:
        self.now_ms += self.draw(st.integers(0, 4_000_000))
        getattr(self, "_" + self.draw(st.sampled_from(STEPS)))()

    def _wait(self) -> None:
        pass

    def _launch(self, earlier_ms: int = 0) -> None:
        self.launched += 1
        powered = self.draw(st.integers(0, 7)) > 0
        node = NodeLaunched(
            at=at(self.now_ms),
            job="job",
            key=f"k{self.launched}",
            node_id=f"n{self.launched}",
            pool=self.draw(st.sampled_from(POOLS)),
            launched_at=at(self.now_ms - earlier_ms),
            micros_per_hour=self.draw(st.integers(0, 10**9)),
            idle_w=self.draw(st.floats(0, 3000)) if powered else None,
            busy_w=self.draw(st.floats(0, 12000)) if powered else None,
            pue=self.draw(st.floats(1, 2)) if powered else None,
            gco2e_per_kwh=self.draw(st.none() | st.floats(0, 1000)) if powered else None,
            energy_basis="modelled" if powered else "unknown",
            carbon_signal=CarbonSignal.AVERAGE,
        )
        self.alive[node.node_id] = node
        self.events.append(node)

    def _adopt(self) -> None:
        self._launch(self.draw(st.integers(0, self.now_ms)))

    def _end(self, earlier_ms: int = 0) -> None:
        if not self.alive:
            return
        node = self.alive.pop(self.draw(st.sampled_from(sorted(self.alive))))
        self._close(node, earlier_ms, self.draw(st.sampled_from(EndCause)))

    def _close(self, node: NodeLaunched, earlier_ms: int, cause: EndCause) -> None:
        if cause is EndCause.LOST:
            self.lost[node.node_id] = node
        self.events.append(
            NodeEnded(
                at=at(self.now_ms),
                job="job",
                node_id=node.node_id,
                pool=node.pool,
                ended_at=max(node.launched_at, at(self.now_ms - earlier_ms)),
                cause=cause,
            )
        )

    def _correct(self) -> None:
        """The true end of a lost node is reported, earlier or later than was guessed."""
        if self.lost:
            node = self.lost.pop(self.draw(st.sampled_from(sorted(self.lost))))
            self._close(node, self.draw(st.integers(0, self.now_ms)), EndCause.RELEASED)

    def _return(self) -> None:
        if self.lost:
            node = self.lost.pop(self.draw(st.sampled_from(sorted(self.lost))))
            self.alive[node.node_id] = node
            self.events.append(
                NodeReturned(at=at(self.now_ms), job="job", node_id=node.node_id, pool=node.pool)
            )

    def _end_late(self) -> None:
        self._end(self.draw(st.integers(0, self.now_ms)))

    def _price(self) -> None:
        self.events.append(
            PriceChanged(
                at=at(self.now_ms),
                job="job",
                pool=self.draw(st.sampled_from(POOLS)),
                micros_per_hour=self.draw(st.integers(0, 10**9)),
            )
        )

    def _intensity(self) -> None:
        """Of any hour so far: it may be published late, or once more."""
        hour = self.draw(st.integers(0, self.now_ms // HOUR_MS))
        self.events.append(
            CarbonIntensityRecorded(
                at=at(self.now_ms),
                job="job",
                region="aws/r",
                hour_at=at(hour * HOUR_MS),
                gco2e_per_kwh=self.draw(st.floats(0, 1000)),
                carbon_signal=CarbonSignal.AVERAGE,
                source="test",
            )
        )

    def _measure(self) -> None:
        """A node's agent goes on measuring, or a new one begins where the last one ended."""
        if not self.alive:
            return
        node = self.alive[self.draw(st.sampled_from(sorted(self.alive)))]
        last = self.measured.get(node.node_id)
        from_at, wh = node.launched_at, 0.0
        if last is not None and self.draw(st.booleans()):
            from_at, wh = last.from_at, last.wh or 0.0
        elif last is not None:
            from_at = last.until_at
        event = NodeMeasured(
            at=at(self.now_ms),
            job="job",
            node_id=node.node_id,
            from_at=from_at,
            until_at=at(self.now_ms),
            wh=wh + self.draw(st.floats(0, 5000)),
        )
        self.measured[node.node_id] = event
        self.events.append(event)

    def _gang(self) -> None:
        if self.training:
            self._stop()
        self.generation += 1
        members = [node_id for node_id in sorted(self.alive) if self.draw(st.booleans())]
        self.events.append(
            GangFormed(
                at=at(self.now_ms),
                job="job",
                generation=self.generation,
                node_ids=tuple(members),
                checkpoint_interval_s=600.0,
            )
        )

    def _train(self) -> None:
        if self.generation and not self.training:
            self.training = True
            self.events.append(
                TrainingStarted(
                    at=at(self.now_ms), job="job", generation=self.generation, units=0.0
                )
            )

    def _stop(self) -> None:
        if self.training:
            self.training = False
            self.events.append(
                TrainingStopped(
                    at=at(self.now_ms),
                    job="job",
                    generation=self.generation,
                    units=0.0,
                    reason="stop",
                )
            )


@st.composite
def runs(draw: st.DrawFn) -> tuple[tuple[Event, ...], datetime]:
    """Events of a job, and an instant at or after the last of them."""
    recorder = Recorder(draw)
    for _ in range(draw(st.integers(0, 25))):
        recorder.step()
    return tuple(recorder.events), at(recorder.now_ms + draw(st.integers(0, 10_000_000)))


def folded(events: tuple[Event, ...]) -> JobAccount:
    account = JobAccount("job")
    for event in events:
        account.apply(event)
    return account


def lives(events: tuple[Event, ...], now: datetime) -> dict[str, tuple[datetime, datetime]]:
    """From when until when each node is billed, read off the events one by one."""
    ends: dict[str, datetime] = {}
    for event in events:
        if isinstance(event, NodeEnded):
            ends[event.node_id] = event.ended_at
        elif isinstance(event, NodeReturned):
            del ends[event.node_id]
    return {
        e.node_id: (e.launched_at, ends.get(e.node_id, now))
        for e in events
        if isinstance(e, NodeLaunched)
    }


def cost_by_definition(events: tuple[Event, ...], node: NodeLaunched, now: datetime) -> int:
    """Σ over price segments of micros_per_hour × ms // 3,600,000, from scratch."""
    launched, ended = lives(events, now)[node.node_id]
    prices = [(launched, node.micros_per_hour)]
    adopted = events.index(node)
    for index, event in enumerate(events):
        mine = isinstance(event, PriceChanged) and event.pool == node.pool
        if mine and event.at < ended and (event.at > launched or index > adopted):
            assert isinstance(event, PriceChanged)
            prices.append((event.at, event.micros_per_hour))
    total = 0
    for place, (start, micros) in enumerate(prices):
        end = prices[place + 1][0] if place + 1 < len(prices) else ended
        total += micros * ((end - start) // timedelta(milliseconds=1)) // 3_600_000
    return total


def measured_by_definition(events: tuple[Event, ...], node: NodeLaunched, now: datetime) -> float:
    """Σ over agents of the last total that each gave while the node lived, from scratch."""
    _, ended = lives(events, now)[node.node_id]
    totals: dict[datetime, float] = {}
    for event in events:
        if not isinstance(event, NodeMeasured) or event.node_id != node.node_id:
            continue
        totals.pop(event.from_at, None)
        if event.from_at < event.until_at <= ended:
            totals[event.from_at] = (event.wh or 0.0) * known(node.pue)
    return sum(totals.values())


def busy_by_definition(events: tuple[Event, ...], node_id: str, now: datetime) -> timedelta:
    """How long the node was a member of a training gang while it lived, from scratch."""
    launched, ended = lives(events, now)[node_id]
    busy, since = timedelta(), None
    members: tuple[str, ...] = ()
    for event in (*events, None):
        if isinstance(event, GangFormed):
            members = event.node_ids
        elif isinstance(event, TrainingStarted):
            since = event.at
        elif since is not None and (event is None or isinstance(event, TrainingStopped)):
            if node_id in members:
                stopped = now if event is None else event.at
                span = min(stopped, ended) - max(since, launched)
                busy += max(timedelta(), span)
            since = None
    return busy


@settings(max_examples=200, deadline=None)
@given(runs())
def test_cost_and_energy_are_what_their_definitions_say(
    run: tuple[tuple[Event, ...], datetime],
) -> None:
    events, now = run
    rows = {row.node_id: row for row in folded(events).intervals(now)}
    for node in (event for event in events if isinstance(event, NodeLaunched)):
        row = rows[node.node_id]
        assert row.usd_micros == cost_by_definition(events, node, now)
        busy = busy_by_definition(events, node.node_id, now).total_seconds()
        if node.pue is None:
            launched, ended = lives(events, now)[node.node_id]
            assert row.wh == row.gco2e == (None if ended > launched else 0)
        elif any(isinstance(e, NodeMeasured) and e.node_id == node.node_id for e in events):
            assert known(row.wh) >= measured_by_definition(events, node, now) - 1e-3
        else:
            modelled_wh = known(node.busy_w) * busy * node.pue / 3600
            assert row.busy_wh == pytest.approx(modelled_wh, abs=1e-5)


def grams_by_definition(
    events: tuple[Event, ...], node: NodeLaunched, now: datetime
) -> float | None:
    """Σ over hours of what a model of the node alone drew in it × the hour's intensity."""
    launched, ended = lives(events, now)[node.node_id]
    hourly = {e.hour_at: e.gco2e_per_kwh for e in events if isinstance(e, CarbonIntensityRecorded)}
    drawn = {row.node_id: row for row in folded(events).intervals(now)}[node.node_id]
    total, begin = 0.0, launched
    while begin < ended:
        end = min(ended, START + ((begin - START) // HOUR + 1) * HOUR)
        intensity = hourly.get(START + (begin - START) // HOUR * HOUR, node.gco2e_per_kwh)
        busy = sum(
            (max(timedelta(), min(stop, end) - max(start, begin)) for start, stop in drawn.busy),
            timedelta(),
        )
        hours, busy_hours = (end - begin) / HOUR, busy / HOUR
        idle_w, busy_w = known(node.idle_w), known(node.busy_w)
        wh = (idle_w * (hours - busy_hours) + busy_w * busy_hours) * known(node.pue)
        if wh > 1e-6 and intensity is None:
            return None
        total += wh / 1000 * (intensity or 0.0)
        begin = end
    return total


@settings(max_examples=200, deadline=None)
@given(runs())
def test_grams_are_by_the_intensity_of_each_hour(run: tuple[tuple[Event, ...], datetime]) -> None:
    events, now = run
    rows = {row.node_id: row for row in folded(events).intervals(now)}
    for node in (event for event in events if isinstance(event, NodeLaunched)):
        if node.pue is None:
            continue
        if any(isinstance(e, NodeMeasured) and e.node_id == node.node_id for e in events):
            continue
        expected = grams_by_definition(events, node, now)
        actual = rows[node.node_id].gco2e
        if expected is not None and actual is not None:
            assert actual == pytest.approx(expected, rel=1e-6, abs=1e-4)
        else:
            assert actual is expected or known(rows[node.node_id].wh) < 1e-5


@settings(max_examples=100, deadline=None)
@given(runs(), st.randoms(use_true_random=False))
def test_the_order_in_which_intensities_arrive_changes_nothing(
    run: tuple[tuple[Event, ...], datetime], random: Random
) -> None:
    events, now = run
    newest = {e.hour_at: e for e in events if isinstance(e, CarbonIntensityRecorded)}
    shuffled = [e for e in events if not isinstance(e, CarbonIntensityRecorded)]
    for event in newest.values():
        shuffled.insert(random.randint(0, len(shuffled)), event)
    assert folded(tuple(shuffled)).summary(now) == folded(events).summary(now)


@settings(max_examples=200, deadline=None)
@given(runs())
def test_the_total_is_the_sum_over_node_intervals(
    run: tuple[tuple[Event, ...], datetime],
) -> None:
    events, now = run
    account = folded(events)
    summary, rows = account.summary(now), account.intervals(now)
    assert summary.usd_micros == sum(row.usd_micros for row in rows)
    assert summary.spot_usd_micros + summary.on_demand_usd_micros == summary.usd_micros
    drawn = [row.wh for row in rows if row.wh is not None]
    if len(drawn) < len(rows):
        assert summary.wh is summary.idle_wh is summary.busy_wh is None
    else:
        assert summary.wh == pytest.approx(sum(drawn), abs=1e-4)
    assert summary.nodes_alive == sum(row.ended_at is None for row in rows)
    grams = [row.gco2e for row in rows if row.gco2e is not None]
    if len(grams) < len(rows):
        assert summary.gco2e is None
    else:
        assert summary.gco2e == pytest.approx(sum(grams), abs=1e-4)


@settings(max_examples=100, deadline=None)
@given(runs(), st.integers(0, 25))
def test_looking_in_between_changes_nothing(
    run: tuple[tuple[Event, ...], datetime], cut: int
) -> None:
    events, now = run
    at_once, in_halves = folded(events), folded(events[:cut])
    if events[:cut]:
        in_halves.summary(events[:cut][-1].at)
        in_halves.intervals(now)
        in_halves.curves(now)
    for event in events[cut:]:
        in_halves.apply(event)
    assert in_halves.summary(now) == at_once.summary(now)
    assert in_halves.intervals(now) == at_once.intervals(now)
    assert in_halves.curves(now) == at_once.curves(now)


@settings(max_examples=100, deadline=None)
@given(runs(), st.lists(st.integers(0, 10**8), max_size=5))
def test_cost_and_energy_never_fall_as_time_passes(
    run: tuple[tuple[Event, ...], datetime], waits_ms: list[int]
) -> None:
    events, now = run
    account = folded(events)
    times = [now, *(now + timedelta(milliseconds=ms) for ms in sorted(waits_ms))]
    summaries = [account.summary(when) for when in times]
    assert [s.usd_micros for s in summaries] == sorted(s.usd_micros for s in summaries)
    drawn = [math.inf if s.wh is None else s.wh for s in summaries]
    assert drawn == sorted(drawn)


@settings(max_examples=100, deadline=None)
@given(runs())
def test_the_spend_curve_rises_to_the_total(run: tuple[tuple[Event, ...], datetime]) -> None:
    events, now = run
    account = folded(events)
    spend, summary = account.curves(now).spend, account.summary(now)
    assert [p.usd_micros for p in spend] == sorted(p.usd_micros for p in spend)
    assert [p.at for p in spend] == sorted({p.at for p in spend})
    assert (spend[-1].usd_micros if spend else 0) == summary.usd_micros
    drawn = spend[-1].wh if spend else 0
    if summary.wh is None:
        assert drawn is None
    else:
        assert drawn == pytest.approx(summary.wh, abs=1e-4)


@settings(max_examples=100, deadline=None)
@given(runs())
def test_events_reported_twice_count_once(run: tuple[tuple[Event, ...], datetime]) -> None:
    events, now = run
    reported_twice = tuple(
        event
        for fact in events
        for event in ((fact, fact) if isinstance(fact, (NodeLaunched, NodeEnded)) else (fact,))
    )
    assert folded(reported_twice).summary(now) == folded(events).summary(now)
