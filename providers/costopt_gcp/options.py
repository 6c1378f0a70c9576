"""The options of ``connect``, validated: regions, offers, price sources, and how nodes start."""

from __future__ import annotations

import os
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, SkipValidation, model_validator

from costopt.provider.options import Listed, NodeCount, Text, WebAddress, matches, with_method
from costopt_gcp.bootstrap import Bootstrap, NodeOptions
from costopt_gcp.clients import TIMEOUTS, Timeouts
from costopt_gcp.launch_request import PlacementMode
from costopt_gcp.prices import ListPrices

DatedPrices = Annotated[SkipValidation[ListPrices | None], with_method("__call__", "a function")]
OF_CATALOGUE = {"list_prices": "list_price_usd_per_hour", "spot_prices": "spot_price_usd_per_hour"}


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
    """Return the placement mode; YAML 1.1 reads a bare off as false."""
    return PlacementMode.OFF if value is False else value


class GcpOptions(NodeOptions):
    """Every option of the provider: where to launch, what is offered, how nodes start.

    Sources of the notices: cloud.google.com/compute/docs/instances/spot, 30 s, best effort, or
    120 s where offered.
    """

    injected: ClassVar[frozenset[str]] = NodeOptions.injected | {"bootstrap", *OF_CATALOGUE}

    list_prices: DatedPrices = Field(
        default=None, description="a dated list to fall back on; default: the catalogue's"
    )
    spot_prices: DatedPrices = Field(
        default=None,
        description="a dated list for spot prices that Google does not publish; default: the "
        "catalogue's",
    )
    instance_types: Listed[Text] = Field(
        default=(),
        description='names and wildcards, such as ["a2-highgpu-1g", "g2-*", "n1-standard-8+1xT4"]; '
        "default: every type with GPUs of its own",
    )
    advised_nodes: NodeCount | None = Field(
        default=1,
        description="for how many nodes the likelihood of capacity is asked; null: for none",
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

    @model_validator(mode="before")
    @classmethod
    def _prices_of_catalogue(cls, options: dict[str, Any]) -> dict[str, Any]:
        machines = options.get("machines")
        found = {key: getattr(machines, method, None) for key, method in OF_CATALOGUE.items()}
        return found | options

    @property
    def asked_notice_s(self) -> int | None:
        """Return the notice to request at a launch; None leaves Google's default."""
        return None if self.preemption_notice_s == SHORT_NOTICE_S else self.preemption_notice_s
