"""Who trains a job together: held outside the trainers, so that it survives any of them.

The contract, for who hosts it (an agent, a controller, a process of its own) and who joins:

- Serve it with ``MembershipServer`` (costopt.agent.membership_server), one for each job, for as
  long as the job lives, whatever gangs come and go. Its address goes to every trainer as
  COSTOPT_MEMBERSHIP: "host:port", or "file:///path" of a file that holds it and the key to it
  (costopt.protocol.membership), which is read at each attempt to connect; so a membership
  that died can be started again elsewhere. Trainers go on without one, until they need it to form
  anew. A membership without a key takes anybody who reaches it, and is served to this machine
  alone.
- To add a node, start a trainer there. To take one away, give its trainer a notice: it leaves
  after a step, and the others go on. A process that has imported torch, and torch._dynamo (0.8 s),
  which every optimizer imports when it is made, and then runs the script joins soonest.
- A gang is the oldest members, up to the number of virtual shards; who comes beyond that is a
  spare that takes the place of the next to go.
- ``generation`` numbers the gangs and only rises. It is the fencing token of checkpoints: a
  trainer that was stopped and wakes belongs to an older one. A membership that starts anew takes
  up from the highest that its trainers have seen; ``generation`` given at the start must exceed
  those of earlier starts whose trainers are gone (a gang number of the controller × 1000 does).
- A member that closes its connection is gone at once, one that is silent for SILENT_S soon
  after. It may come back; then it is new, and takes the state of the others.
- A first gang is formed when the expected number has come, or ``settle_s`` after the last one
  came. Later ones are formed as soon as every member that lives is ready.

``Membership`` is the rule without sockets or clocks: every method takes ``now``, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from costopt.protocol.membership import (
    HEARTBEAT_TIMEOUT_S,
    GangFormedMessage,
    GangOverMessage,
    JoinMessage,
    JoinPendingMessage,
    ReadyMessage,
    ToTrainer,
    TrainerProgress,
)

SETTLE_TIMEOUT_S = 2.0
HANG_TIMEOUT_S = 300.0


@dataclass(slots=True)
class _Member:
    hello: JoinMessage
    standing: TrainerProgress
    ready: bool
    heard_at: float
    joined_at: float


@dataclass(slots=True)
class Membership:
    """Letters to send accumulate in ``outbox`` as (member, letter); who sends empties it.

    ``silent_s`` of silence end a membership. A member that lives but does not come ready within
    ``hung_s`` after its gang is over is counted out.
    """

    generation: int = 0
    silent_s: float = HEARTBEAT_TIMEOUT_S
    settle_s: float = SETTLE_TIMEOUT_S
    hung_s: float = HANG_TIMEOUT_S
    outbox: list[tuple[str, ToTrainer]] = field(default_factory=list)
    gang: tuple[str, ...] = ()
    _members: dict[str, _Member] = field(default_factory=dict)
    _over_at: float | None = None
    _trained: int = 0
    _missing: set[str] = field(default_factory=set)
    _missed_at: float = 0.0

    @property
    def members(self) -> tuple[str, ...]:
        """All that are connected, the oldest first, spares included."""
        return tuple(self._members)

    def join(self, hello: JoinMessage, now: float) -> None:
        """A trainer came, or came back."""
        name, standing = hello.member, hello.standing
        if name in self._members:
            self.leave(name, "it came anew", now)
        if hello.ready and name in self._missing:
            self._end_gang(f"it broke at {name}", now)
        elif not hello.ready and not self._readmit(hello, now):
            self._send(name, GangOverMessage(hello.generation, "the others went on without you"))
        self.generation = max(self.generation, standing.generation, hello.generation)
        self._members[name] = _Member(hello, standing, hello.ready, now, now)
        self.beat(name, standing, now)
        self._announce()

    def beat(self, name: str, standing: TrainerProgress, now: float) -> None:
        """A member lives, and is this far."""
        if name in self._members:
            self._members[name].heard_at = now
            self._members[name].standing = standing
            self._trained = max(self._trained, standing.generation)

    def progress_by_member(self) -> dict[str, TrainerProgress]:
        """How far each member is, as it last said."""
        return {name: member.standing for name, member in self._members.items()}

    def ready(self, name: str, letter: ReadyMessage, now: float) -> None:
        """A member has left its gang and waits."""
        member = self._members.get(name)
        if member is None:
            return
        self.beat(name, letter.standing, now)
        member.ready = True
        if name not in self.gang:
            self._announce()
        elif letter.failed:
            self._end_gang(f"it broke at {name}", now)
        elif self._over_at is None:
            self._over_at = now

    def leave(self, name: str, why: str, now: float, *, agreed: bool = False) -> None:
        """A member is gone. ``agreed``: its gang knew and parts of itself."""
        gone = self._members.pop(name, None)
        self.outbox = [(to, letter) for to, letter in self.outbox if to != name]
        if gone is None or name not in self.gang:
            return
        if agreed:
            self.gang = tuple(other for other in self.gang if other != name)
            self._over_at = now if self._over_at is None else self._over_at
        else:
            self._end_gang(f"{name}: {why}", now)
            self.gang = tuple(other for other in self.gang if other != name)

    def advance(self, now: float) -> tuple[str, ...]:
        """Count out who is silent or hangs, and form a gang if it is time; names who was counted
        out, to be disconnected."""
        silent = [n for n, m in self._members.items() if now - m.heard_at > self.silent_s]
        for name in silent:
            self.leave(name, f"silent for {self.silent_s:g} s", now)
        if self._missing and now >= self._missed_at:
            self._end_gang(f"{', '.join(sorted(self._missing))}: did not come back", now)
        hung = self._hung(now)
        for name in hung:
            self.leave(name, f"not ready within {self.hung_s:g} s", now)
        if self._may_form(now):
            self._form()
        return (*silent, *hung)

    def next_at(self, now: float) -> float:
        """When ``advance`` may have something to do, if nothing happens before."""
        times = [m.heard_at + self.silent_s for m in self._members.values()]
        if not self.gang and self._members:
            times.append(max(m.joined_at for m in self._members.values()) + self.settle_s)
        if self._missing:
            times.append(self._missed_at)
        return min(times, default=now + self.settle_s)

    def _readmit(self, hello: JoinMessage, now: float) -> bool:
        """Whether it goes on in a gang that ran before this membership did. Who comes first says
        who else is in it; if one of them does not come within ``settle_s``, the gang is over."""
        if not self.gang and hello.generation > self.generation:
            self.generation, self._over_at = hello.generation, None
            self._missing = set(hello.gang)
            self._missed_at = now + self.settle_s
        elif hello.generation != self.generation or hello.member not in self._missing:
            return False
        self.gang = (*self.gang, hello.member)
        self._missing.discard(hello.member)
        return True

    def _announce(self) -> None:
        """Tell the gang of who waits, where there is room."""
        waiting = [name for name, member in self._members.items() if member.ready]
        if waiting and self._over_at is None and len(self.gang) < self._most():
            for name in self.gang:
                self._send(name, JoinPendingMessage(f"{', '.join(waiting)} came"))

    def _end_gang(self, why: str, now: float) -> None:
        if self._over_at is None:
            self._over_at = now
        self._missing = set()
        for name in self.gang:
            if name in self._members and not self._members[name].ready:
                self._send(name, GangOverMessage(self.generation, why))

    def _hung(self, now: float) -> list[str]:
        if self._over_at is None or now - self._over_at < self.hung_s:
            return []
        return [name for name, member in self._members.items() if not member.ready]

    def _may_form(self, now: float) -> bool:
        ready = [member for member in self._members.values() if member.ready]
        if not ready:
            return False
        if self.gang:
            return self._over_at is not None and all(self._members[n].ready for n in self.gang)
        if len(ready) < len(self._members):
            return False
        if any(self._counts(member.standing) for member in ready):
            return True
        expected = max((m.hello.expected or 0) for m in ready)
        settled = now - max(member.joined_at for member in ready) >= self.settle_s
        return settled or 0 < expected <= len(ready)

    def _form(self) -> None:
        candidates = [name for name, member in self._members.items() if member.ready]
        first = [name for name in candidates if name in self.gang]
        rest = [name for name in candidates if name not in self.gang]
        gang = (*first, *rest)[: self._most()]
        self.generation += 1
        self.gang, self._over_at, self._missing = gang, None, set()
        source, aligned = self._source(gang)
        formed = GangFormedMessage(
            self.generation,
            gang,
            source,
            aligned,
            self._members[gang[0]].hello.store,
            tuple(self._members[name].hello.conditions for name in gang),
            self.silent_s,
        )
        for name in gang:
            self._members[name].ready = False
            self._send(name, formed)

    def _source(self, gang: tuple[str, ...]) -> tuple[int | None, bool]:
        """The most advanced of those who trained last, and whether all are where it is."""
        standings = [self._members[name].standing for name in gang]
        steps = [s.step if s.step is not None and self._counts(s) else -1 for s in standings]
        if max(steps) < 0:
            return None, False
        return steps.index(max(steps)), min(steps) == max(steps)

    def _counts(self, standing: TrainerProgress) -> bool:
        """Whether a state is worth going on from: that of a trainer that was left behind is not,
        since others may have come further and saved."""
        return standing.step is not None and standing.generation >= self._trained

    def _most(self) -> int:
        return max(1, min(member.hello.most for member in self._members.values()))

    def _send(self, name: str, letter: ToTrainer) -> None:
        self.outbox.append((name, letter))
