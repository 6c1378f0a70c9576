"""What marks costopt's own nodes in a cloud: tags, labels, metadata or annotations, none secret."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from costopt.domain.fleet import EndCause, LaunchRequest, Node, NodeState
from costopt.domain.market import Pool

FIELDS = ("owner", "job", "key", "pool", "usd-per-hour")
LABEL_LENGTH = 63
"""What a label holds in Kubernetes and on Google Cloud."""
DIGEST_LENGTH = 12


@dataclass(frozen=True, slots=True)
class NodeTags:
    """Whose a node is, by which launch, and its price then: a restarted controller reads them."""

    owner: str
    job: str
    key: str
    pool: Pool
    usd_per_hour: float

    @classmethod
    def of_request(cls, request: LaunchRequest, usd_per_hour: float) -> NodeTags:
        """Return the tags of a launch's nodes."""
        return cls(request.owner, request.job, request.key, request.pool, usd_per_hour)

    @classmethod
    def parse(cls, texts: Mapping[str, str], prefix: str) -> NodeTags | None:
        """Return the tags in ``texts`` under the prefix, None where they are not a node's."""
        try:
            owner, job, key, pool, usd_per_hour = (texts[prefix + name] for name in FIELDS)
            return cls(owner, job, key, Pool.parse(pool), float(usd_per_hour))
        except (KeyError, ValueError):
            return None

    def texts(self, prefix: str) -> dict[str, str]:
        """Return them as texts by name: what ``parse`` reads."""
        values = (self.owner, self.job, self.key, str(self.pool), repr(self.usd_per_hour))
        return {prefix + name: value for name, value in zip(FIELDS, values, strict=True)}

    def node(
        self,
        node_id: str,
        state: NodeState,
        launched_at: datetime,
        ended_at: datetime | None = None,
        end: tuple[EndCause, str] | None = None,
    ) -> Node:
        """Return the node; ``end`` is the cause of its end and a message, None while it lives."""
        return Node(
            node_id=node_id,
            owner=self.owner,
            job=self.job,
            pool=self.pool,
            key=self.key,
            state=state,
            launched_at=launched_at,
            usd_per_hour=self.usd_per_hour,
            ended_at=ended_at,
            end_cause=None if end is None else end[0],
            message="" if end is None else end[1],
        )


def fitted_label(value: str, fits: re.Pattern[str], plain: str) -> str:
    """Return the value where a label can hold it, else the beginning of ``plain`` and a digest.

    ``plain`` is the value in characters that a label can hold. Different values never give the same
    label, but for chance among 2⁴⁸.
    """
    if len(value) <= LABEL_LENGTH and fits.fullmatch(value):
        return value
    begin = plain.strip("._-")[: LABEL_LENGTH - DIGEST_LENGTH - 1]
    return f"{begin or 'x'}-{short_digest(value)}"


def short_digest(text: str, characters: int = DIGEST_LENGTH) -> str:
    """Return the beginning of the text's SHA-256 in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()[:characters]


def time_of(text: object) -> datetime | None:
    """Return an RFC 3339 time in aware UTC; None without one."""
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC) if text else None
    except ValueError:
        return None
