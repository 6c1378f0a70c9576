"""A cloud that refuses launches which its offers promised, and whose nodes start late."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar, cast

from costopt.controller.site import connect_virtual_provider
from costopt.domain.errors import NoCapacityError
from costopt.domain.fleet import LaunchRequest, Node
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.policy import Policy
from costopt.domain.ports import InstanceCatalog, Strategy
from costopt.domain.runtime import Runtime
from costopt.engine.engine import TickResult
from costopt.engine.loop import VirtualClock, run_until_done
from costopt.engine.settings import EngineSettings, World, deterministic_key
from costopt.ledger.base import MemoryLedger
from costopt.ledger.summary import JobSummary
from costopt.provider.base import Provider
from costopt.provider.wrapper import ProviderWrapper
from tests.support.cant_be_late import NoHazard, OnePower
from tests.support.engines import start_engine
from tests.support.forwarding import Forwarding

T = TypeVar("T")


class LateRuntime(Forwarding):
    """Every gang begins ``late_s`` after the time that the job says."""

    def __init__(self, inner: Runtime, late_s: float) -> None:
        super().__init__(inner)
        self._late_s = late_s

    def form_gang(self, job: Job, *rest: Any) -> None:
        self._inner.form_gang(replace(job, startup_s=job.startup_s + self._late_s), *rest)


class RefusingProvider(ProviderWrapper):
    """Before each launch on demand that succeeds, the next of ``refusals`` are refused."""

    def __init__(self, inner: Provider, refusals: Iterable[int]) -> None:
        super().__init__(inner)
        self._refusals = iter(refusals)
        self._left = next(self._refusals, 0)

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        if request.pool.capacity_type.is_interruptible:
            return super().launch(request)
        if self._left > 0:
            self._left -= 1
            raise NoCapacityError(f"{request.pool}: none left, whatever was offered")
        nodes = super().launch(request)
        self._left = next(self._refusals, 0)
        return nodes

    def _call(self, method: str, call: Callable[[], T]) -> T:
        return call()


def live_through(
    job: Job,
    policy: Policy,
    history: MarketHistory,
    strategy: Strategy,
    machines: InstanceCatalog,
    *,
    refusals: Iterable[int],
    late_s: float,
    cooldown_s: float,
    tick_s: float,
    notice_s: float = 0.0,
) -> JobSummary:
    """The job's run on such a cloud, to three times its deadline."""
    clock = VirtualClock(job.start_at)
    inner = connect_virtual_provider(
        clock, {"market": history, "machines": machines, "notice_s": notice_s}
    )
    world = World(
        (RefusingProvider(inner, refusals),),
        cast("Runtime", LateRuntime(inner.runtime, late_s)),
        MemoryLedger(),
        clock,
        machines,
        OnePower(),
        NoHazard(),
    )
    settings = EngineSettings(tick_s=tick_s, cooldown_s=cooldown_s, new_key=deterministic_key)
    engine = start_engine([job], policy, strategy, world, settings)
    end_at = job.start_at + 3 * (job.until_at - job.start_at)

    def check(result: TickResult) -> None:
        if engine.unfinished and result.now >= end_at:
            engine.stop("not done where the replay ends")

    run_until_done(engine, check)
    return engine.journal.accounts[job.name].summary(clock.now())
