"""Who trains a job together: held outside the trainers, so that it survives any of them.

The contract, for the process that hosts it (an agent, a controller, or a separate one) and for the
trainers that join:

- Serve it with ``MembershipServer`` (costopt.agent.membership_server), one for each job, for as
  long as the job lives, whatever gangs form and end. Its address is passed to every trainer as
  COSTOPT_MEMBERSHIP: "host:port", or "file:///path" of a file that holds the address and its key
  (costopt.protocol.membership). The file is read at each attempt to connect, so a membership that
  died can be restarted elsewhere. Trainers continue without one until they need it to form the next
  gang. A membership without a key accepts any client that reaches it, and is served to this machine
  alone.
- To add a node, start a trainer there. To remove one, give its trainer a notice: it leaves after a
  step, and the others continue. The fastest to join is a process that has already imported torch
  and torch._dynamo (0.8 s; every optimizer imports it when it is created) and then runs the script.
- Trainers of a sharded model join as units, which hold one copy of it together: only whole units
  form gangs, and the loss of one member ends its unit.
- A gang is the oldest members, up to the number of virtual shards; members beyond that are spares,
  which replace the next one to leave.
- ``generation`` numbers the gangs and only rises. It is the fencing token of checkpoints: a trainer
  that was suspended and wakes belongs to an older one. A restarted membership continues from the
  highest that its trainers have seen; ``generation`` given at the start must exceed those of
  earlier starts whose trainers are gone (a gang number of the controller × 1000 does).
- A member that closes its connection is gone at once; one without heartbeats, after
  HEARTBEAT_TIMEOUT_S. It may come back; then it counts as new and takes the state of the others.
- The first gang forms when the expected number of members has joined, or ``settle_s`` after the
  last one joined. Later gangs form as soon as every live member is ready.

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
    join: JoinMessage
    standing: TrainerProgress
    ready: bool
    heard_at: float
    joined_at: float


@dataclass(slots=True)
class Membership:
    """The members of one job and the gangs they form.

    Messages to send accumulate in ``outbox`` as (member, message); the sender empties it. A member
    is removed after ``silent_s`` seconds without a heartbeat, or if it lives but is not ready
    ``hung_s`` seconds after its gang ended.
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
        """Return every connected member, the oldest first, spares included."""
        return tuple(self._members)

    def join(self, join: JoinMessage, now: float) -> None:
        """Add a trainer that has joined, or joined again."""
        name, standing = join.member, join.standing
        if name in self._members:
            self.leave(name, "it joined again", now)
        if join.ready and name in self._missing:
            self._end_gang(f"it broke at {name}", now)
        elif not join.ready and not self._readmit(join, now):
            self._send(name, GangOverMessage(join.generation, "the others went on without you"))
        self.generation = max(self.generation, standing.generation, join.generation)
        self._members[name] = _Member(join, standing, join.ready, now, now)
        self.beat(name, standing, now)
        self._announce()

    def beat(self, name: str, standing: TrainerProgress, now: float) -> None:
        """Record that a member lives, and its progress."""
        if name in self._members:
            self._members[name].heard_at = now
            self._members[name].standing = standing
            self._trained = max(self._trained, standing.generation)

    def progress_by_member(self) -> dict[str, TrainerProgress]:
        """Return each member's progress as it last reported it."""
        return {name: member.standing for name, member in self._members.items()}

    def ready(self, name: str, message: ReadyMessage, now: float) -> None:
        """Record that a member has left its gang and waits for the next."""
        member = self._members.get(name)
        if member is None:
            return
        self.beat(name, message.standing, now)
        member.ready = True
        if name not in self.gang:
            self._announce()
        elif message.failed:
            self._end_gang(f"it broke at {name}", now)
        elif self._over_at is None:
            self._over_at = now

    def leave(self, name: str, why: str, now: float, *, agreed: bool = False) -> None:
        """Remove a member. ``agreed``: its gang knows and disbands without an error."""
        gone = self._members.pop(name, None)
        self.outbox = [(to, message) for to, message in self.outbox if to != name]
        if gone is None:
            return
        lost = {name} if agreed else {name, *self._end_unit(gone.join, f"{name}: {why}")}
        if name not in self.gang:
            return
        if agreed:
            self._over_at = now if self._over_at is None else self._over_at
        else:
            self._end_gang(f"{name}: {why}", now)
        self.gang = tuple(other for other in self.gang if other not in lost)

    def _end_unit(self, lost: JoinMessage, why: str) -> list[str]:
        """Return the others of a unit that lost a member; they are asked to end."""
        mates = [n for n, m in self._members.items() if lost.unit and m.join.unit == lost.unit]
        for mate in mates:
            self._send(mate, GangOverMessage(self.generation, why, unit_over=True))
        return mates

    def advance(self, now: float) -> tuple[str, ...]:
        """Remove members that are unreachable or hang, and form a gang if it is time.

        Return the names of the removed members, to be disconnected.
        """
        silent = [n for n, m in self._members.items() if now - m.heard_at > self.silent_s]
        for name in silent:
            self.leave(name, f"no heartbeat for {self.silent_s:g} s", now)
        if self._missing and now >= self._missed_at:
            self._end_gang(f"{', '.join(sorted(self._missing))}: did not join again", now)
        hung = self._hung(now)
        for name in hung:
            self.leave(name, f"not ready within {self.hung_s:g} s", now)
        if self._may_form(now):
            self._form()
        return (*silent, *hung)

    def next_at(self, now: float) -> float:
        """Return when ``advance`` may next have something to do if no message comes before."""
        times = [m.heard_at + self.silent_s for m in self._members.values()]
        if not self.gang and self._members:
            times.append(max(m.joined_at for m in self._members.values()) + self.settle_s)
        if self._missing:
            times.append(self._missed_at)
        return min(times, default=now + self.settle_s)

    def _readmit(self, join: JoinMessage, now: float) -> bool:
        """Whether it continues in a gang that ran before this membership was started.

        The first to join names the others; if one of them does not join within ``settle_s``, the
        gang is over.
        """
        if not self.gang and join.generation > self.generation:
            self.generation, self._over_at = join.generation, None
            self._missing = set(join.gang)
            self._missed_at = now + self.settle_s
        elif join.generation != self.generation or join.member not in self._missing:
            return False
        self.gang = (*self.gang, join.member)
        self._missing.discard(join.member)
        return True

    def _announce(self) -> None:
        """Notify the gang of the trainers that wait, if there are free places."""
        waiting = [name for unit in self._units(ready=True) for name in unit]
        training = {self._members[name].join.unit or name for name in self.gang}
        if waiting and self._over_at is None and len(training) < self._most():
            for name in self.gang:
                self._send(name, JoinPendingMessage(f"{', '.join(waiting)} joined"))

    def _units(self, *, ready: bool = False) -> list[tuple[str, ...]]:
        """Return the units of which all members are here (and ready), the oldest unit first."""
        found: dict[str, list[str]] = {}
        for name, member in self._members.items():
            if member.ready or not ready:
                found.setdefault(member.join.unit or name, []).append(name)
        joins = {name: member.join for name, member in self._members.items()}
        return [
            tuple(sorted(names, key=lambda name: joins[name].position))
            for names in found.values()
            if len(names) == joins[names[0]].unit_size
        ]

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
        units = self._units(ready=True)
        if not units:
            return False
        if self.gang:
            return self._over_at is not None and all(self._members[n].ready for n in self.gang)
        if len(units) < len(self._units()):
            return False
        if any(self._step(unit) >= 0 for unit in units):
            return True
        ready = [self._members[name] for unit in units for name in unit]
        expected = max((m.join.expected or 0) for m in ready)
        settled = now - max(member.joined_at for member in ready) >= self.settle_s
        return settled or 0 < expected <= len(units)

    def _form(self) -> None:
        # sorted() keeps the order among equals: those of the last gang come first.
        candidates = sorted(self._units(ready=True), key=lambda unit: unit[0] not in self.gang)
        units = candidates[: self._most()]
        gang = tuple(name for unit in units for name in unit)
        self.generation += 1
        self.gang, self._over_at, self._missing = gang, None, set()
        source, aligned = self._source(units)
        formed = GangFormedMessage(
            self.generation,
            gang,
            source,
            aligned,
            self._members[gang[0]].join.store,
            tuple(self._members[name].join.conditions for name in gang),
            self.silent_s,
        )
        for name in gang:
            self._members[name].ready = False
            self._send(name, formed)

    def _source(self, units: list[tuple[str, ...]]) -> tuple[int | None, bool]:
        """Return a rank of the most advanced unit, and whether all units have its state."""
        steps = [self._step(unit) for unit in units]
        if max(steps) < 0:
            return None, False
        return steps.index(max(steps)) * len(units[0]), min(steps) == max(steps)

    def _step(self, unit: tuple[str, ...]) -> int:
        """Return the steps after which all of a unit have a state to resume from, -1 for none."""
        standings = [self._members[name].standing for name in unit]
        return min(-1 if s.step is None or not self._counts(s) else s.step for s in standings)

    def _counts(self, standing: TrainerProgress) -> bool:
        """Whether a gang may resume from this state: not if the trainer was left behind, since the
        others may have progressed further and saved.
        """
        return standing.step is not None and standing.generation >= self._trained

    def _most(self) -> int:
        return max(1, min(member.join.most for member in self._members.values()))

    def _send(self, name: str, message: ToTrainer) -> None:
        self.outbox.append((name, message))
