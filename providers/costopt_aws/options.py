"""The options of ``connect``, validated: regions, offers, price sources, and how nodes start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, SkipValidation, model_validator

from costopt.provider.options import Listed, NodeCount, Text, WebAddress, matches, with_method
from costopt_aws.bootstrap import Bootstrap, NodeOptions
from costopt_aws.capacity import ADVISOR_URL
from costopt_aws.clients import TIMEOUTS, Timeouts
from costopt_aws.errors import map_errors
from costopt_aws.prices import PRICE_FILE_URL, ListPrices


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "costopt"


Region = Annotated[
    str,
    matches(
        r"[a-z]{2,4}(-[a-z]+)+-\d+",
        "the name of an AWS region, such as us-east-1 (us-east-1a is a zone)",
    ),
]

QUEUE_URL = r"https?://[^/\s]+/(?P<account>\d+)/(?P<name>[A-Za-z0-9_.-]+)"
QueueUrl = Annotated[
    str,
    matches(
        QUEUE_URL,
        "the URL of an SQS queue, such as https://sqs.us-east-1.amazonaws.com/123456789012/costopt",
    ),
]


class AwsOptions(NodeOptions):
    """Every option of the provider: where to launch, what is offered, how nodes start."""

    injected: ClassVar[frozenset[str]] = NodeOptions.injected | {"bootstrap", "list_prices"}

    list_prices: Annotated[
        SkipValidation[ListPrices | None], with_method("__call__", "a function")
    ] = Field(default=None, description="a dated list to fall back on; default: the catalogue's")
    instance_types: Listed[Text] = Field(
        default=(), description='names and wildcards, such as ["p5.48xlarge", "g6e.*"]'
    )
    cache_folder: Annotated[Path, Field(strict=False)] = Field(
        default_factory=_cache_folder, description="a folder where price files are kept"
    )
    advisor_url: WebAddress = Field(
        default_factory=lambda: os.environ.get("COSTOPT_AWS_ADVISOR_URL") or ADVISOR_URL,
        description="a web address in place of AWS's Spot Advisor",
    )
    price_file_url: WebAddress = Field(
        default_factory=lambda: os.environ.get("COSTOPT_AWS_PRICE_FILE_URL") or PRICE_FILE_URL,
        description="a web address in place of AWS's price files",
    )
    scored_nodes: NodeCount | None = Field(
        default=1, description="for how many nodes placement scores are asked; null: for none"
    )
    bootstrap: Annotated[
        SkipValidation[Bootstrap | None], with_method("setup", "an object with setup(request)")
    ] = Field(default=None, description="what nodes are started with; default: by these options")
    regions: Annotated[Listed[Region], Field(min_length=1)] = Field(
        description="a list of regions to rent in, such as [us-east-1]"
    )
    profile: Text | None = Field(default=None, description="a profile of the AWS configuration")
    queues: Mapping[Region, QueueUrl] = Field(
        default_factory=dict,
        description="a mapping of region to the URL of the SQS queue that EventBridge feeds; "
        "without one, notices come only from the nodes themselves",
    )
    timeouts: Timeouts = Field(
        default=TIMEOUTS, description="seconds, as connect_s, read_s and launch_s"
    )

    @classmethod
    def usual_region(cls, options: Mapping[str, object]) -> str | None:
        """Return the region that `aws configure` wrote for the profile."""
        if find_spec("boto3") is None:
            return None
        import boto3

        profile = options.get("profile")
        with map_errors("sts:GetCallerIdentity", "credentials"):
            region = boto3.session.Session(profile_name=profile).region_name
        return None if region is None else str(region)

    @model_validator(mode="before")
    @classmethod
    def _list_prices_of_catalogue(cls, options: dict[str, Any]) -> dict[str, Any]:
        listed = getattr(options.get("machines"), "list_price_usd_per_hour", None)
        return {"list_prices": listed, **options}
