"""The mode gate: which of the engine's actions are done, proposed or only recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from costopt.domain.control import ActionKind, Mode, Proposal, ProposalState, Registry
from costopt.domain.events import ActionProposed, LaunchIntended, NodeLaunched
from costopt.domain.fleet import Action, Drain, Launch, Terminate
from costopt.domain.money import to_micros
from costopt.engine.engine import Engine
from costopt.engine.guards import LaunchLimits
from costopt.engine.quotas import GuardViolation

REJECTED_FOR = timedelta(hours=1)
"""How long a rejected action is not proposed again."""
APPROVAL_TTL = timedelta(hours=1)
"""Lifetime of an unused approval: by then the market has changed."""
DAEMON = "costopt"
Key = tuple[str, str, str, int, str]


class ModeGate:
    """A Gate that lets all actions, the approved ones, or none through.

    In every mode a launch waits until its job's files are where its nodes can fetch them
    (``ready``), and nothing is launched while launches are halted. In ``recommend`` the release of
    nodes whose job is over, or was stopped, needs no approval: it follows from the launch's.
    """

    def __init__(self, registry: Registry, mode: Mode, ready: Callable[[str], bool]) -> None:
        self._registry = registry
        self._default = mode
        self._ready = ready
        self._engine: Engine | None = None
        self._observed: frozenset[Key] = frozenset()
        self._granted: list[Proposal] = []
        self.mode = mode

    def serve(self, engine: Engine) -> None:
        """Set the engine whose actions pass this gate."""
        self._engine = engine

    def begin_tick(self) -> Mode:
        """Apply the mode that was set last to the tick that begins, and return it."""
        self.mode = self._registry.mode() or self._default
        return self.mode

    @property
    def is_acting(self) -> bool:
        """Return whether the mode lets the daemon act: not in observe."""
        return self.mode is not Mode.OBSERVE

    @property
    def is_unattended(self) -> bool:
        """Return whether the daemon acts without asking: in enforce."""
        return self.mode is Mode.ENFORCE

    def halt(self) -> GuardViolation | None:
        """Return the current halt, read at this instant."""
        halt = self._registry.halted()
        if halt is None:
            return None
        return GuardViolation("halt", halt.message)

    def permitted(
        self, actions: Sequence[Action], bounds: Mapping[str, LaunchLimits], now: datetime
    ) -> tuple[Action, ...]:
        """Return the actions that may be done now; the others are proposed."""
        actions = [a for a in actions if not isinstance(a, Launch) or self._ready(a.job)]
        match self.mode:
            case Mode.ENFORCE:
                self._withdraw(frozenset(), now)
                return tuple(actions)
            case Mode.OBSERVE:
                self._withdraw(frozenset(), now)
                self._observe(actions, bounds, now)
                return ()
            case Mode.RECOMMEND:
                return self._recommend(actions, bounds, now)

    def settle(self, refused: Mapping[Launch, str], now: datetime) -> None:
        """Record the outcome of the approved proposals that were attempted."""
        why = {_key(launch, str(launch.pool)): reason for launch, reason in refused.items()}
        for proposal in self._granted:
            reason = why.get(_key_of(proposal))
            if reason is not None:
                state = ProposalState.REFUSED
                self._registry.answer(proposal.id, state, DAEMON, now, reason)
            elif self._is_done(proposal):
                self._registry.answer(proposal.id, ProposalState.EXECUTED, DAEMON, now)
        self._granted.clear()

    def _observe(
        self, actions: Sequence[Action], bounds: Mapping[str, LaunchLimits], now: datetime
    ) -> None:
        """Propose each action once while it is needed."""
        keys = frozenset(_key(action, self._pool(action)) for action in actions)
        for action in actions:
            if _key(action, self._pool(action)) not in self._observed:
                self._record(self._proposal(action, bounds, now))
        self._observed = keys

    def _recommend(
        self, actions: Sequence[Action], bounds: Mapping[str, LaunchLimits], now: datetime
    ) -> tuple[Action, ...]:
        known = {_key_of(p): p for p in self._registry.proposals(_STANDING) if _counts(p, now)}
        wanted: set[Key] = set()
        done: list[Action] = []
        for action in actions:
            if self._matches_mode(action):
                done.append(action)
                continue
            key = _key(action, self._pool(action))
            wanted.add(key)
            standing = known.get(key)
            if standing is None:
                proposal = self._proposal(action, bounds, now)
                self._record(proposal)
                self._registry.propose(proposal)
            elif standing.state is ProposalState.APPROVED:
                self._granted.append(standing)
                done.append(action)
        self._withdraw(frozenset(wanted), now)
        return tuple(done)

    def _matches_mode(self, action: Action) -> bool:
        """Return whether a release follows from an earlier approval or operator action."""
        assert self._engine is not None
        if isinstance(action, Launch):
            return False
        record = self._engine.journal.records[action.job]
        return record.over or action.job in self._engine.stops

    def _withdraw(self, wanted: frozenset[Key], now: datetime) -> None:
        for proposal in self._registry.proposals([ProposalState.OPEN, ProposalState.APPROVED]):
            if _key_of(proposal) not in wanted:
                done = proposal.state is ProposalState.APPROVED and self._is_done(proposal)
                state = ProposalState.EXECUTED if done else ProposalState.WITHDRAWN
                self._registry.answer(proposal.id, state, DAEMON, now)

    def _is_done(self, proposal: Proposal) -> bool:
        """Return whether the proposal has begun since its approval, even by a daemon that crashed
        before recording it."""
        assert self._engine is not None
        record = self._engine.journal.records.get(proposal.job)
        if record is None or proposal.answered_at is None:
            return False
        if proposal.kind is not ActionKind.LAUNCH:
            return proposal.node_id in record.draining
        begun: tuple[LaunchIntended | NodeLaunched, ...] = (
            *record.intents.values(),
            *record.live.values(),
        )
        return any(e.pool == proposal.pool and e.at >= proposal.answered_at for e in begun)

    def _proposal(
        self, action: Action, bounds: Mapping[str, LaunchLimits], now: datetime
    ) -> Proposal:
        assert self._engine is not None
        number = self._engine.journal.records[action.job].proposal_count + 1
        pool = self._pool(action)
        proposal_id = f"{action.job}-p{number}"
        if not isinstance(action, Launch):
            kind = ActionKind.DRAIN if isinstance(action, Drain) else ActionKind.TERMINATE
            return Proposal(
                proposal_id, action.job, kind, pool, 1, action.reason, now, node_id=action.node_id
            )
        decision = self._engine.journal.accounts[action.job].last_decision
        reason = "" if decision is None else decision.reason
        price = bounds[action.job].prices.get(action.pool)
        return Proposal(
            proposal_id, action.job, ActionKind.LAUNCH, pool, action.nodes, reason, now,
            usd_per_hour=price,
        )  # fmt: skip

    def _pool(self, action: Action) -> str:
        if isinstance(action, Launch):
            return str(action.pool)
        assert self._engine is not None
        return self._engine.journal.records[action.job].live[action.node_id].pool

    def _record(self, proposal: Proposal) -> None:
        assert self._engine is not None
        usd = proposal.usd_per_hour
        self._engine.journal.write(
            ActionProposed(
                at=proposal.proposed_at,
                job=proposal.job,
                proposal_id=proposal.id,
                mode=self.mode.value,
                action=proposal.kind.value,
                pool=proposal.pool,
                nodes=proposal.nodes,
                reason=proposal.reason,
                node_id=proposal.node_id,
                micros_per_hour=to_micros(usd),
            )
        )


_STANDING = (ProposalState.OPEN, ProposalState.APPROVED, ProposalState.REJECTED)


def _counts(proposal: Proposal, now: datetime) -> bool:
    """Return whether the answer, or the lack of one, is still valid."""
    since = proposal.answered_at or proposal.proposed_at
    match proposal.state:
        case ProposalState.REJECTED:
            return now - since < REJECTED_FOR
        case ProposalState.APPROVED:
            return now - since < APPROVAL_TTL
        case _:
            return True


def _key(action: Action, pool: str) -> Key:
    match action:
        case Launch():
            return action.job, ActionKind.LAUNCH.value, pool, action.nodes, ""
        case Drain():
            return action.job, ActionKind.DRAIN.value, pool, 1, action.node_id
        case Terminate():
            return action.job, ActionKind.TERMINATE.value, pool, 1, action.node_id


def _key_of(proposal: Proposal) -> Key:
    return (
        proposal.job, proposal.kind.value, proposal.pool, proposal.nodes, proposal.node_id or ""
    )  # fmt: skip
