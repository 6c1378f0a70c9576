"""Amazon EC2: spot, on-demand and reserved pools, launched and watched over the public API.

``connect`` is the entry point ``aws``. Nothing is asked of AWS until the first call that needs it.
"""

from __future__ import annotations

from costopt.domain.ports import Clock, ProviderOptions
from costopt_aws.options import AwsOptions
from costopt_aws.provider import AwsProvider

__all__ = ["OPTIONS", "AwsOptions", "AwsProvider", "connect"]

OPTIONS = AwsOptions


def connect(clock: Clock, options: ProviderOptions) -> AwsProvider:
    """The provider over the regions of ``options["regions"]``; see ``AwsOptions`` for the others.

    Raises BadRequestError for an option that is missing, unknown or malformed.
    """
    from costopt_aws.clients import Clients

    parsed = AwsOptions.parse(options)
    return AwsProvider(clock, parsed, Clients(parsed.profile, parsed.timeouts))
