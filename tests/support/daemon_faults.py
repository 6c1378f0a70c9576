"""What befalls a daemon in a test: it dies at a step, or the line to its cloud misbehaves.

A step is a write to the ledger or the registry, or a call that changes the world, each once before
and once after it took effect. Steps are numbered through the life of a scene, over all its daemons.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar, cast

from costopt.domain.errors import ProviderError, ProviderUnavailableError, StoreError
from costopt.domain.events import Event
from costopt.domain.job import Job
from costopt.domain.market import Offer
from costopt.domain.ports import Clock
from costopt.domain.progress import Progress
from costopt.domain.runtime import Runtime
from costopt.ledger.sql_ledger import SqlLedger
from costopt.provider.base import Provider
from costopt.provider.wrapper import ProviderWrapper
from tests.support.forwarding import Forwarding

T = TypeVar("T")


class Killed(BaseException):
    """The daemon is gone: nothing in it may catch this."""


class KillPlan:
    """Kills at the steps whose numbers it was given, and remembers what every step was."""

    def __init__(self, kills: Collection[int] = ()) -> None:
        self._kills = frozenset(kills)
        self.steps: list[str] = []

    def step(self, label: str) -> None:
        """One step further. Raises Killed."""
        self.steps.append(label)
        if len(self.steps) in self._kills:
            raise Killed(label)

    def around(self, label: str, work: Callable[[], T]) -> T:
        """``work`` between two steps."""
        self.step(f"before {label}")
        done = work()
        self.step(f"after {label}")
        return done


class KillableLedger(Forwarding):
    """The ledger of a daemon that may die before or after each append."""

    def __init__(
        self, inner: SqlLedger, fate: KillPlan, wait: Callable[[], None] = lambda: None
    ) -> None:
        """``wait`` is how long the disk takes."""
        super().__init__(inner)
        self._fate = fate
        self._wait = wait

    def append(self, *events: Event) -> None:
        self._wait()
        kinds = dict.fromkeys(type(event).__name__ for event in events)
        self._fate.around(f"writing {' + '.join(kinds)}", lambda: self._inner.append(*events))


class KillableRegistry:
    """The registry of a daemon that may die before or after it notes what became of a proposal."""

    WRITES = ("propose", "answer")

    def __init__(self, inner: Any, fate: KillPlan) -> None:
        self._inner = inner
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self.WRITES:
            return found
        return lambda *given, **named: self._fate.around(
            f"registry {name}", lambda: found(*given, **named)
        )


class KillableRuntime(Forwarding):
    """The training runtime, reached by a daemon that may die, over a store that may refuse."""

    def __init__(self, inner: Runtime, clock: Clock, fate: KillPlan) -> None:
        super().__init__(inner)
        self._clock = clock
        self._fate = fate
        self.silent: set[str] = set()
        self.refusals = 0

    def progress(self, job: Job, now: datetime) -> Progress:
        reported: Progress = self._inner.progress(job, self._clock.now())
        return reported

    def form_gang(self, job: Job, *rest: Any) -> None:
        self._reach("form_gang", lambda: self._inner.form_gang(job, *rest))

    def drain(self, job: Job, node_ids: Collection[str]) -> None:
        self._reach("drain", lambda: self._inner.drain(job, node_ids))

    def _reach(self, call: str, work: Callable[[], None]) -> None:
        if call in self.silent:
            self.refusals += 1
            raise StoreError(f"{call}: the store does not answer")
        self._fate.around(f"runtime {call}", work)


class Fault(StrEnum):
    """What can go wrong on the line to a cloud."""

    REQUEST_DROPPED = "request dropped"
    REPLY_DROPPED = "reply dropped"
    LATE = "request late"
    VERY_LATE = "request later than it is waited for"
    TWICE = "request delivered twice"
    OUT_OF_ORDER = "answers out of order"


DELAYS_S = {Fault.LATE: (1.0, 240.0), Fault.VERY_LATE: (400.0, 1500.0), Fault.TWICE: (1.0, 900.0)}
OLDEST = timedelta(minutes=4)
"""An answer that is older is none: the engine takes no listing to be older than its grace time."""


class UnreliableProvider(ProviderWrapper):
    """The provider at the other end of a bad line: each call suffers with ``chance``."""

    def __init__(
        self,
        inner: Provider,
        clock: Clock,
        fate: KillPlan,
        faults: Sequence[Fault] = (),
        chance: float = 0.15,
        chances: random.Random | None = None,
    ) -> None:
        super().__init__(inner)
        self.clock, self.fate = clock, fate
        self.faults, self.chance = faults, chance
        self.chances = chances or random.Random(0)
        self.suffered = 0
        self._under_way: list[tuple[datetime, Callable[[], object]]] = []
        self._reported: dict[str, tuple[datetime, Any]] = {}

    @property
    def inner(self) -> Provider:
        """What is at the other end; a test may put another in its place."""
        return self._raw

    @inner.setter
    def inner(self, inner: Provider) -> None:
        self._raw = inner

    def uninterruptible_s(self, now: datetime) -> float:
        return super().uninterruptible_s(self.clock.now())

    def offers(self, now: datetime) -> Sequence[Offer]:
        return super().offers(self.clock.now())

    def _call(self, method: str, call: Callable[[], T]) -> T:
        return (self._commanded if method in ("launch", "terminate") else self._asked)(method, call)

    def close(self) -> None:
        """It outlives daemons."""

    def deliver(self) -> None:
        """What was late and has arrived by now takes effect, in the order of arrival."""
        due = sorted((at for at, _ in self._under_way if at <= self.clock.now()))
        for at in due:
            index = next(i for i, each in enumerate(self._under_way) if each[0] == at)
            _, work = self._under_way.pop(index)
            try:
                work()
            except ProviderError:
                continue

    def _fault(self) -> Fault | None:
        if not self.faults or self.chances.random() >= self.chance:
            return None
        self.suffered += 1
        return self.chances.choice(self.faults)

    def _asked(self, call: str, answer: Callable[[], T]) -> T:
        self.deliver()
        fault = self._fault()
        if fault is Fault.OUT_OF_ORDER and call in self._reported:
            answered_at, reported = self._reported[call]
            if self.clock.now() - answered_at <= OLDEST:
                return cast("T", reported)
        if fault not in (None, Fault.TWICE, Fault.OUT_OF_ORDER):
            raise ProviderUnavailableError(f"{call}: no answer")
        reported = answer()
        self._reported[call] = self.clock.now(), reported
        return reported

    def _commanded(self, call: str, work: Callable[[], T]) -> T:
        self.deliver()
        self.fate.step(f"before {call}")
        fault = self._fault()
        if fault in DELAYS_S:
            self._send_late(work, *DELAYS_S[fault])
        if fault in (Fault.REQUEST_DROPPED, Fault.LATE, Fault.VERY_LATE):
            raise ProviderUnavailableError(f"{call}: no answer")
        done = work()
        self.fate.step(f"after {call}")
        if fault is Fault.REPLY_DROPPED:
            raise ProviderUnavailableError(f"{call}: no answer")
        return done

    def _send_late(self, work: Callable[[], object], min_s: float, max_s: float) -> None:
        delay = timedelta(seconds=self.chances.uniform(min_s, max_s))
        self._under_way.append((self.clock.now() + delay, work))
