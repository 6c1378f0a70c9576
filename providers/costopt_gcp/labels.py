"""The labels and metadata by which costopt knows its own.

Labels can be filtered by and hold little: 63 lower-case letters, digits, dashes and underscores
(cloud.google.com/compute/docs/labeling-resources). So they hold what is looked for, and an
instance's metadata holds the whole of it. None of it is secret: the node can read it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from costopt.domain.fleet import LaunchRequest

OWNER = "costopt-owner"
JOB = "costopt-job"
KEY = "costopt-key"
POOL = "costopt-pool"
PRICE = "costopt-usd-per-hour"
"""The price at launch, so that a restarted controller knows it."""

NAMES = "costopt-"
"""What the names of all instances begin with, and those of their boot disks, which are the same."""

LIMIT = 63
DIGEST = 12
_FITS = re.compile(r"[a-z0-9][a-z0-9_-]*")


def label(value: str) -> str:
    """The value as it is where a label can hold it, else what it can, with a digest of the whole.

    Different values never give the same label, but for chance among 2⁴⁸.
    """
    if len(value) <= LIMIT and _FITS.fullmatch(value):
        return value
    plain = re.sub(r"[^a-z0-9_-]", "-", value.lower()).strip("-_")[: LIMIT - DIGEST - 1]
    return f"{plain or 'x'}-{_digest(value, DIGEST)}"


def labels(owner: str, job: str, key: str | None = None) -> dict[str, str]:
    """Of everything that is made for a job; with ``key`` of what one launch makes."""
    found = {OWNER: label(owner), JOB: label(job)}
    return found if key is None else {**found, KEY: label(key)}


def description(owner: str, job: str) -> str:
    """Of what can have no labels, such as placement policies."""
    return json.dumps({OWNER: owner, JOB: job}, sort_keys=True)


def described(text: str) -> Mapping[str, str]:
    """The inverse of ``description``; nothing where the text is another's."""
    try:
        told = json.loads(text)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def owned_by(owner: str) -> str:
    """The filter of a list call for what carries this owner's label."""
    return f'labels.{OWNER} = "{label(owner)}"'


def launched_by(owner: str, key: str) -> str:
    """The filter of a list call for the nodes of one launch."""
    return f'({owned_by(owner)}) AND (labels.{KEY} = "{label(key)}")'


def node_names(request: LaunchRequest) -> tuple[str, ...]:
    """The names of a launch's instances, which follow from its owner and key.

    A zone has one instance of a name, so a launch cannot happen twice under the same key.
    """
    digest = _digest(f"{request.owner}/{request.key}", 20)
    return tuple(f"{NAMES}{digest}-{rank}" for rank in range(request.nodes))


def metadata(items: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """An instance's metadata as a mapping."""
    return {item["key"]: item.get("value", "") for item in items}


def _digest(text: str, characters: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:characters]
