"""Kubernetes: pods as nodes, on standing nodes and on those that an autoscaler brings.

``connect`` is the entry point ``kubernetes``. No request goes to the cluster, and lightkube is not
imported, before the first call that needs it.
"""

from __future__ import annotations

from importlib.util import find_spec

from costopt.domain.errors import MissingExtraError, install_hint
from costopt.domain.ports import Clock
from costopt.provider.base import ProviderOptions
from costopt_kubernetes.options import KubernetesOptions
from costopt_kubernetes.provider import KubernetesProvider

__all__ = ["OPTIONS", "KubernetesOptions", "KubernetesProvider", "connect"]

OPTIONS = KubernetesOptions


def connect(clock: Clock, options: ProviderOptions) -> KubernetesProvider:
    """Return the provider for the cluster of ``options``; see ``KubernetesOptions``.

    Raise BadRequestError if an option is missing, unknown or malformed, MissingExtraError if
    lightkube is not installed.
    """
    from costopt_kubernetes.clients import ApiClient

    parsed = KubernetesOptions.parse(options)
    if find_spec("lightkube") is None:
        raise MissingExtraError("lightkube is not installed", hint=install_hint("kubernetes"))
    return KubernetesProvider(clock, parsed, ApiClient(clock, parsed))
