"""What a tick leaves behind for those who look: made once, changed never."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from costopt.daemon.views import FleetNode
from costopt.domain.events import DecisionMade
from costopt.domain.market import Offer
from costopt.ledger.summary import JobSummary


@dataclass(frozen=True, slots=True)
class TickSnapshot:
    """The state after a tick, by job where it is of jobs.

    ``held`` says why a job gets no nodes, ``troubles`` what is wrong with it alone,
    ``failing_nodes`` which of its nodes have failed since it saved work last, ``guarded`` why a
    guard has stopped it. To jobs that are ``closed`` nothing happens any more. ``silent`` says why
    a provider does not answer.
    """

    now: datetime
    nodes: tuple[FleetNode, ...] = ()
    nodes_of: Mapping[str, tuple[FleetNode, ...]] = field(default_factory=dict)
    summaries: Mapping[str, JobSummary] = field(default_factory=dict)
    decisions: Mapping[str, DecisionMade] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
    troubles: Mapping[str, str] = field(default_factory=dict)
    failing_nodes: Mapping[str, str] = field(default_factory=dict)
    guarded: Mapping[str, str] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()
    offers: tuple[Offer, ...] = ()
    silent: Mapping[str, str] = field(default_factory=dict)
