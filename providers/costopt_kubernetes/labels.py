"""Labels, annotations and names that mark costopt's own pods.

Labels can be selected by and hold 63 characters; annotations hold the whole texts. None of it is
secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from costopt.domain.fleet import LaunchRequest
from costopt.provider.tags import NodeTags, fitted_label, short_digest

PREFIX = "costopt.dev/"
OWNER = f"{PREFIX}owner"
JOB = f"{PREFIX}job"
LAUNCH = f"{PREFIX}launch"
KEY = f"{PREFIX}key"
RELEASED = f"{PREFIX}released-at"
MANAGED = "app.kubernetes.io/managed-by"
US = "costopt"

_FITS = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def label(value: str) -> str:
    """Return the value as a label holds it; see ``fitted_label``."""
    return fitted_label(value, _FITS, re.sub(r"[^A-Za-z0-9._-]", "-", value))


def launch_of(owner: str, key: str) -> str:
    """Return what names the pods of a launch: the same for the same owner and key."""
    return f"costopt-{short_digest(f'{owner}/{key}')}"


def pod_names(request: LaunchRequest) -> tuple[str, ...]:
    """Return the names of the request's pods."""
    launch = launch_of(request.owner, request.key)
    return tuple(f"{launch}-{number}" for number in range(request.nodes))


def labels(request: LaunchRequest) -> dict[str, str]:
    """Return the labels of the request's pods."""
    return {
        MANAGED: US,
        OWNER: label(request.owner),
        JOB: label(request.job),
        LAUNCH: launch_of(request.owner, request.key),
    }


def notes(request: LaunchRequest, usd_per_hour: float) -> dict[str, str]:
    """Return the annotations from which a pod is read as a node."""
    return {
        **NodeTags.of_request(request, usd_per_hour).texts(PREFIX),
        "karpenter.sh/do-not-disrupt": "true",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    }


def selector(wanted: Mapping[str, str]) -> str:
    """Return the query of a list of objects with these labels."""
    return ",".join(f"{key}={value}" for key, value in sorted(wanted.items()))


def owned_by(owner: str) -> str:
    """Return the selector of an owner's pods."""
    return selector({MANAGED: US, OWNER: label(owner)})


def launched_by(owner: str, key: str) -> str:
    """Return the selector of a launch's pods."""
    return selector({MANAGED: US, LAUNCH: launch_of(owner, key)})
