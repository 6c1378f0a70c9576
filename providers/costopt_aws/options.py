"""What ``connect`` is given, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, SkipValidation

from costopt.provider.options import Listed, Text, matches, with_method
from costopt_aws.bootstrap import NodeOptions
from costopt_aws.clients import TIMEOUTS, Timeouts
from costopt_aws.market_options import MarketOptions
from costopt_aws.node_setup import Bootstrap

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


class AwsOptions(MarketOptions, NodeOptions):
    """Every option of the adapter: where to rent, what is offered, how nodes come up."""

    injected: ClassVar[frozenset[str]] = (
        MarketOptions.injected | NodeOptions.injected | {"bootstrap"}
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

    @property
    def market(self) -> MarketOptions:
        """What is offered and where prices are looked up."""
        return self

    @property
    def nodes(self) -> NodeOptions:
        """How nodes come up."""
        return self
