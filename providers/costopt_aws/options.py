"""What ``connect`` is given, checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from costopt.domain.errors import BadRequestError
from costopt.domain.ports import Machines, ProviderOptions
from costopt_aws.bootstrap import NODE_KEYS, NodeOptions
from costopt_aws.clients import Timeouts
from costopt_aws.market_options import MARKET_KEYS, MarketOptions
from costopt_aws.node_setup import Bootstrap

_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d+")
KEYS = MARKET_KEYS | NODE_KEYS
KEYS |= {"regions", "machines", "profile", "queues", "timeouts", "bootstrap"}


@dataclass(frozen=True, slots=True)
class AwsOptions:
    """``regions``: where to rent. ``machines``: the catalogue, None where there is none.

    ``queues``: by region, the URL of the SQS queue that EventBridge feeds with the regions'
    interruption warnings; without one, notices come only from the nodes themselves.
    ``bootstrap`` says what a node is started with, None for what follows from ``nodes``.
    ``market``: what is offered and where prices are looked up.
    """

    regions: tuple[str, ...]
    machines: Machines | None = None
    profile: str | None = None
    queues: Mapping[str, str] = field(default_factory=dict)
    timeouts: Timeouts = Timeouts()  # noqa: RUF009
    bootstrap: Bootstrap | None = None
    market: MarketOptions = MarketOptions()  # noqa: RUF009
    nodes: NodeOptions = NodeOptions()  # noqa: RUF009

    @classmethod
    def parse(cls, options: ProviderOptions) -> AwsOptions:
        """Raises BadRequestError that names the option."""
        unknown = options.keys() - KEYS
        if unknown:
            raise BadRequestError(
                f"costopt_aws: unknown option {', '.join(sorted(unknown))}",
                hint=f"the options are {', '.join(sorted(KEYS))}",
            )
        return cls(
            regions=_regions(options.get("regions")),
            machines=cast("Machines | None", options.get("machines")),
            profile=cast("str | None", options.get("profile")),
            queues=cast("Mapping[str, str]", options.get("queues") or {}),
            timeouts=cast("Timeouts", options.get("timeouts") or Timeouts()),
            bootstrap=_bootstrap(options.get("bootstrap")),
            market=MarketOptions.parse(options),
            nodes=NodeOptions.parse(options),
        )


def _bootstrap(value: object) -> Bootstrap | None:
    if value is not None and not callable(getattr(value, "setup", None)):
        raise BadRequestError(
            f"costopt_aws: option bootstrap must answer setup(request), not {type(value).__name__}"
        )
    return cast("Bootstrap | None", value)


def _regions(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise BadRequestError(
            f"costopt_aws: option regions must be a list of regions, not {value!r}",
            hint="name those to rent in, such as us-east-1",
        )
    regions = tuple(dict.fromkeys(str(region) for region in value))
    if not regions:
        raise BadRequestError(
            "costopt_aws: option regions is empty", hint="name one, such as us-east-1"
        )
    for region in regions:
        if not _REGION.fullmatch(region):
            raise BadRequestError(
                f"costopt_aws: {region!r} is no name of an AWS region",
                hint="a region is named like us-east-1; a zone, like us-east-1a, is not one",
            )
    return regions
