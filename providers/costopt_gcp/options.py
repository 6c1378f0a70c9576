"""What ``connect`` is given, checked."""

from __future__ import annotations

import os
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, SkipValidation

from costopt.provider.options import Listed, WebAddress, matches, with_method
from costopt_gcp.bootstrap import NodeOptions
from costopt_gcp.clients import TIMEOUTS, Timeouts
from costopt_gcp.compact_placement import PlacementMode
from costopt_gcp.market_options import MarketOptions
from costopt_gcp.node_setup import Bootstrap

Region = Annotated[
    str,
    matches(
        r"[a-z]+-[a-z]+\d+",
        "the name of a Google Cloud region, such as us-central1 (us-central1-a is a zone)",
    ),
]
Project = Annotated[
    str,
    matches(
        r"([a-z][a-z0-9.-]*:)?[a-z][a-z0-9-]{4,28}[a-z0-9]",
        "the id of a project, as `gcloud projects list` shows it; not its name or number",
    ),
]
SHORT_NOTICE_S: Literal[30] = 30


def _placement(value: object) -> object:
    """YAML 1.1 reads a bare off as false."""
    return PlacementMode.OFF if value is False else value


class GcpOptions(MarketOptions, NodeOptions):
    """Every option of the adapter: where to rent, what is offered, how nodes come up.

    Sources of the notices: cloud.google.com/compute/docs/instances/spot, 30 s, best effort, or
    120 s where offered.
    """

    injected: ClassVar[frozenset[str]] = (
        MarketOptions.injected | NodeOptions.injected | {"bootstrap"}
    )

    bootstrap: Annotated[
        SkipValidation[Bootstrap | None], with_method("setup", "an object with setup(request)")
    ] = Field(default=None, description="what nodes are started with; default: by these options")
    regions: Annotated[Listed[Region], Field(min_length=1)] = Field(
        description="a list of regions to rent in, such as [us-central1]"
    )
    project: Project | None = Field(
        default_factory=lambda: os.environ.get("GOOGLE_CLOUD_PROJECT") or None,
        description="a project's id; default: GOOGLE_CLOUD_PROJECT, then that of the credentials",
    )
    endpoint: WebAddress | None = Field(
        default_factory=lambda: os.environ.get("COSTOPT_GCP_ENDPOINT") or None,
        description="a web address in place of Google's own; default: COSTOPT_GCP_ENDPOINT",
    )
    timeouts: Timeouts = Field(
        default=TIMEOUTS, description="seconds, as read_s, launch_s and poll_s"
    )
    preemption_notice_s: Literal[30, 120] = Field(
        default=SHORT_NOTICE_S, description="30, or 120 where Google offers the longer notice"
    )
    compact_placement: Annotated[
        PlacementMode, Field(strict=False), BeforeValidator(_placement)
    ] = Field(default=PlacementMode.PREFERRED, description="of gangs: preferred, required or off")

    @property
    def market(self) -> MarketOptions:
        """What is offered and where prices are looked up."""
        return self

    @property
    def nodes(self) -> NodeOptions:
        """How nodes come up."""
        return self

    @property
    def asked_notice_s(self) -> int | None:
        """What is asked for at a launch: None leaves it at Google's default."""
        return None if self.preemption_notice_s == SHORT_NOTICE_S else self.preemption_notice_s
