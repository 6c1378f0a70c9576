"""Google Compute Engine: Spot and on-demand pools, launched and observed over the public API.

``connect`` is the entry point ``gcp``. No request goes to Google, and its client library is not
imported, before the first call that needs it.
"""

from __future__ import annotations

from importlib.util import find_spec

from costopt.domain.errors import MissingExtraError, install_hint
from costopt.domain.ports import Clock
from costopt.provider.base import ProviderOptions
from costopt_gcp.options import GcpOptions
from costopt_gcp.provider import GcpProvider

__all__ = ["OPTIONS", "GcpOptions", "GcpProvider", "connect"]

OPTIONS = GcpOptions
SDK = "google-cloud-compute"


def connect(clock: Clock, options: ProviderOptions) -> GcpProvider:
    """Return the provider for ``options["regions"]``; see ``GcpOptions`` for the others.

    Raise BadRequestError if an option is missing, unknown or malformed, MissingExtraError if
    google-cloud-compute is not installed.
    """
    from costopt_gcp.clients import Clients

    parsed = GcpOptions.parse(options)
    if find_spec("google.cloud.compute_v1") is None:
        raise MissingExtraError(f"{SDK} is not installed", hint=install_hint("gcp"))
    return GcpProvider(clock, parsed, Clients(parsed.project, parsed.endpoint, parsed.timeouts))
