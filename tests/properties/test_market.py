"""Properties of market records: nothing is lost in a file, nothing is left to chance."""

from __future__ import annotations

import math
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.domain.fleet import Node
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import CapacityType, Pool
from costopt.market.generator import generate_market, generator_parameters
from costopt.market.history_file import compress_samples, read_history, write_history
from tests.support.market_fixtures import T0, Sim, training_job

names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
pools = st.builds(Pool, names, names, names, names, st.sampled_from(CapacityType))
prices = st.none() | st.floats(1e-6, 1e6)
capacities = st.none() | st.integers(0, 100_000)
profiles = st.sampled_from([profile.name for profile in generator_parameters().profiles])


@st.composite
def recorded(draw: st.DrawFn, pool: Pool) -> PoolHistory:
    steps = draw(st.lists(st.integers(1, 10**12), min_size=2, max_size=8))
    instants: list[datetime] = []
    at = T0
    for micros in steps:
        instants.append(at)
        at += timedelta(microseconds=micros)
    states = compress_samples(MarketState(i, draw(capacities), draw(prices)) for i in instants)
    return PoolHistory(pool, states, at)


@st.composite
def histories(draw: st.DrawFn) -> MarketHistory:
    chosen = draw(st.lists(pools, min_size=1, max_size=4, unique=True))
    return MarketHistory(
        name=draw(st.text(min_size=1, max_size=20)),
        pools={pool: draw(recorded(pool)) for pool in chosen},
        tick_s=draw(st.none() | st.floats(1e-3, 1e6)),
        source=draw(st.text(min_size=1, max_size=20)),
    )


@given(histories(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_a_file_keeps_a_history_whole_in_any_order_of_its_rows(
    history: MarketHistory, random: Random
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "market.parquet"
        write_history(history, path)
        assert read_history(path) == history
        table = pq.read_table(path)
        order = list(range(len(table)))
        random.shuffle(order)
        pq.write_table(table.take(order), path)
        assert read_history(path) == history


@given(st.lists(st.tuples(capacities, prices), min_size=1, max_size=30))
def test_states_say_at_every_instant_what_the_samples_said(
    samples: list[tuple[int | None, float | None]],
) -> None:
    reported = [MarketState(T0 + timedelta(hours=i), *sample) for i, sample in enumerate(samples)]
    pool = Pool("p", "r", "z", "t", CapacityType.SPOT)
    history = PoolHistory(pool, compress_samples(reported), T0 + timedelta(hours=len(reported)))
    for sample in reported:
        state = history.at(sample.starts_at)
        assert state is not None
        assert state.nodes_available == sample.nodes_available
        assert state.price_usd_per_hour == sample.price_usd_per_hour
    assert all(
        (a.nodes_available, a.price_usd_per_hour) != (b.nodes_available, b.price_usd_per_hour)
        for a, b in zip(history.states, history.states[1:], strict=False)
    )


@given(st.integers(0, 2**64), profiles, st.lists(pools, min_size=1, max_size=3, unique=True))
@settings(max_examples=25, deadline=None)
def test_a_seed_gives_one_market_and_pools_do_not_disturb_each_other(
    seed: int, profile: str, chosen: list[Pool]
) -> None:
    asked = dict.fromkeys(chosen, 2.0)
    whole = generate_market(asked, hours=24, seed=seed, profile=profile)
    assert generate_market(asked, hours=24, seed=seed, profile=profile) == whole
    alone = generate_market({chosen[0]: 2.0}, hours=24, seed=seed, profile=profile)
    assert alone.pools[chosen[0]] == whole.pools[chosen[0]]


SPOT = Pool("aws", "r", "ra", "p3.2xlarge", CapacityType.SPOT)


@given(
    seed=st.integers(0, 1000),
    save_s=st.floats(0, 300),
    notice_s=st.floats(0, 300),
    interval_s=st.floats(5, 3600),
    looks=st.lists(st.floats(1, 7200), min_size=1, max_size=40),
)
@settings(max_examples=60, deadline=None)
def test_training_only_goes_back_by_what_it_says_it_lost(
    seed: int, save_s: float, notice_s: float, interval_s: float, looks: list[float]
) -> None:
    history = generate_market({SPOT: 1.0}, hours=96, seed=seed, profile="harsh", start_at=T0)
    sim, job = Sim(history, notice_s), training_job(20_000.0, save_s=save_s)
    before = sim.provider.runtime.progress(job, T0)
    for generation, seconds in enumerate(looks, start=1):
        if not any(node.state.is_alive for node in sim.provider.nodes("me")):
            (offer,) = sim.provider.offers(sim.clock.now())
            if offer.nodes_available:
                nodes = sim.launch(1, SPOT, f"k{generation}")
                sim.provider.runtime.form_gang(job, generation, nodes, interval_s)
        sim.clock.sleep(seconds)
        now = sim.provider.runtime.progress(job, sim.clock.now())
        lost = now.lost_units - before.lost_units
        assert 0 <= now.saved_units <= now.done_units <= job.work.amount
        assert now.saved_units >= before.saved_units
        assert lost >= 0
        assert now.done_units >= before.done_units - lost - 1e-6
        assert now.done_units <= before.done_units + seconds + 1e-6
        if notice_s >= save_s and not any(_lived_s(n) < save_s for n in sim.provider.nodes("me")):
            assert lost == 0
        before = now
    records = [r.units for r in sim.provider.runtime.checkpoints(job, 0.0)]
    assert records == sorted(set(records))
    assert before.saved_units == (records[-1] if records else 0.0)


def _lived_s(node: Node) -> float:
    """One launched into an announced drop was told as late as it was launched."""
    return math.inf if node.ended_at is None else (node.ended_at - node.launched_at).total_seconds()
