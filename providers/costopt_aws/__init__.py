"""Amazon EC2: spot, on-demand and reserved pools, launched and observed over the public API.

``connect`` is the entry point ``aws``. No request goes to AWS before the first call that needs one.
"""

from __future__ import annotations

from importlib.util import find_spec

from costopt.domain.errors import MissingExtraError, install_hint
from costopt.domain.ports import Clock
from costopt.provider.base import ProviderOptions
from costopt_aws.options import AwsOptions
from costopt_aws.provider import AwsProvider

__all__ = ["OPTIONS", "AwsOptions", "AwsProvider", "connect"]

OPTIONS = AwsOptions
SDK = "boto3"


def connect(clock: Clock, options: ProviderOptions) -> AwsProvider:
    """Return the provider for the regions of ``options["regions"]``; see ``AwsOptions``.

    Raise BadRequestError if an option is missing, unknown or malformed, MissingExtraError if boto3
    is not installed.
    """
    from costopt_aws.clients import Clients

    parsed = AwsOptions.parse(options)
    if find_spec("boto3") is None:
        raise MissingExtraError(f"{SDK} is not installed", hint=install_hint("aws"))
    return AwsProvider(clock, parsed, Clients(parsed.profile, parsed.timeouts))
