"""What ``connect`` is given, checked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from costopt.domain.errors import BadRequestError
from costopt.domain.ports import Machines, ProviderOptions
from costopt_gcp.bootstrap import NODE_KEYS, NodeOptions
from costopt_gcp.clients import Timeouts
from costopt_gcp.compact_placement import Closeness
from costopt_gcp.market_options import MARKET_KEYS, MarketOptions
from costopt_gcp.node_setup import Bootstrap

_REGION = re.compile(r"[a-z]+-[a-z]+\d+")
_PROJECT = re.compile(r"([a-z][a-z0-9.-]*:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
KEYS = MARKET_KEYS | NODE_KEYS
KEYS |= {"regions", "machines", "project", "endpoint", "timeouts", "bootstrap"}
KEYS |= {"compact_placement", "preemption_notice_s"}
SHORT_NOTICE_S = 30
NOTICES_S = (SHORT_NOTICE_S, 120)
"""cloud.google.com/compute/docs/instances/spot: 30 s, best effort, or 120 s where offered."""


@dataclass(frozen=True, slots=True)
class GcpOptions:
    """``regions``: where to rent. ``machines``: the catalogue, None where there is none.

    ``project``: by default the environment variable GOOGLE_CLOUD_PROJECT, then what the credentials
    say. ``endpoint``: of the Compute Engine API, by default COSTOPT_GCP_ENDPOINT, then Google's.
    ``preemption_notice_s``: 30 or 120; with 120 nodes are made with the longer notice, which Google
    does not offer everywhere. ``compact_placement``: whether gangs are to be placed compactly.
    ``bootstrap`` says what a node is started with, None for what follows from ``nodes``.
    """

    regions: tuple[str, ...]
    machines: Machines | None = None
    project: str | None = None
    endpoint: str | None = None
    timeouts: Timeouts = Timeouts()  # noqa: RUF009
    bootstrap: Bootstrap | None = None
    preemption_notice_s: int = SHORT_NOTICE_S
    compact_placement: Closeness = Closeness.PREFERRED
    market: MarketOptions = MarketOptions()  # noqa: RUF009
    nodes: NodeOptions = NodeOptions()  # noqa: RUF009

    @classmethod
    def parse(cls, options: ProviderOptions) -> GcpOptions:
        """Raises BadRequestError that names the option."""
        unknown = options.keys() - KEYS
        if unknown:
            raise BadRequestError(
                f"costopt_gcp: unknown option {', '.join(sorted(unknown))}",
                hint=f"the options are {', '.join(sorted(KEYS))}",
            )
        return cls(
            regions=_regions(options.get("regions")),
            machines=cast("Machines | None", options.get("machines")),
            project=_project(options.get("project") or os.environ.get("GOOGLE_CLOUD_PROJECT")),
            endpoint=_endpoint(options.get("endpoint") or os.environ.get("COSTOPT_GCP_ENDPOINT")),
            timeouts=cast("Timeouts", options.get("timeouts") or Timeouts()),
            bootstrap=_bootstrap(options.get("bootstrap")),
            preemption_notice_s=_notice_s(options.get("preemption_notice_s", SHORT_NOTICE_S)),
            compact_placement=_closeness(options.get("compact_placement", Closeness.PREFERRED)),
            market=MarketOptions.parse(options),
            nodes=NodeOptions.parse(options),
        )

    @property
    def asked_notice_s(self) -> int | None:
        """What is asked for at a launch: None leaves it at Google's default."""
        return None if self.preemption_notice_s == SHORT_NOTICE_S else self.preemption_notice_s


def _bootstrap(value: object) -> Bootstrap | None:
    if value is not None and not callable(getattr(value, "setup", None)):
        raise BadRequestError(
            f"costopt_gcp: option bootstrap must answer setup(request), not {type(value).__name__}"
        )
    return cast("Bootstrap | None", value)


def _project(value: object) -> str | None:
    if value is None or (isinstance(value, str) and _PROJECT.fullmatch(value)):
        return value
    raise BadRequestError(
        f"costopt_gcp: {value!r} is no project id",
        hint="`gcloud projects list` shows the ids; it is not the project's name or number",
    )


def _endpoint(value: object) -> str | None:
    if value is None or (isinstance(value, str) and re.match(r"https?://[^/]+", value)):
        return value
    raise BadRequestError(
        f"costopt_gcp: option endpoint must be a web address, not {value!r}",
        hint="leave it out for Google's own",
    )


def _notice_s(value: object) -> int:
    if not isinstance(value, int) or value not in NOTICES_S:
        raise BadRequestError(
            f"costopt_gcp: option preemption_notice_s must be 30 or 120, not {value!r}"
        )
    return value


def _closeness(value: object) -> Closeness:
    try:
        # YAML reads a bare off as false.
        return Closeness.OFF if value is False else Closeness(str(value))
    except ValueError:
        choices = ", ".join(Closeness)
        raise BadRequestError(
            f"costopt_gcp: option compact_placement must be one of {choices}, not {value!r}"
        ) from None


def _regions(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise BadRequestError(
            f"costopt_gcp: option regions must be a list of regions, not {value!r}",
            hint="name those to rent in, such as us-central1",
        )
    regions = tuple(dict.fromkeys(str(region) for region in value))
    if not regions:
        raise BadRequestError(
            "costopt_gcp: option regions is empty", hint="name one, such as us-central1"
        )
    for region in regions:
        if not _REGION.fullmatch(region):
            raise BadRequestError(
                f"costopt_gcp: {region!r} is no name of a Google Cloud region",
                hint="a region is named like us-central1; a zone, like us-central1-a, is not one",
            )
    return regions
