"""The namespace's ResourceQuotas as quotas of costopt's own nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costopt.domain.account import Quota
from costopt.domain.errors import ForbiddenError
from costopt_kubernetes import labels
from costopt_kubernetes.clients import ApiClient
from costopt_kubernetes.machines import NAME
from costopt_kubernetes.offers import LIVING
from costopt_kubernetes.options import KubernetesOptions
from costopt_kubernetes.quantities import Amounts, amounts, pod_requests

PODS = ("pods", "count/pods")


class NamespaceQuotas:
    """A quota holds what others leave: its limit less their use, as ours is counted apart."""

    def __init__(self, api: ApiClient, options: KubernetesOptions) -> None:
        self._api = api
        self._options = options

    def now(self) -> tuple[Quota, ...]:
        """Return the quotas of GPUs and pods; none where they may not be read. Raise
        ProviderError."""
        namespace = self._api.namespace
        try:
            listed = self._api.list(f"api/v1/namespaces/{namespace}/resourcequotas")
        except ForbiddenError:
            return ()
        limiting = [item for item in listed if not _is_scoped(item)]
        ours = self._ours() if limiting else {}
        found = (self._quota(item, ours) for item in limiting)
        return tuple(quota for quota in found if quota is not None)

    def _quota(self, item: Mapping[str, Any], ours: Amounts) -> Quota | None:
        status = item.get("status") or {}
        hard, used = amounts(status.get("hard")), amounts(status.get("used"))
        gpus = f"requests.{self._options.gpu_resource}"

        def left(name: str, mine: float) -> int | None:
            if name not in hard:
                return None
            return max(0, int(hard[name] - used.get(name, 0.0) + mine))

        max_gpus = left(gpus, ours.get(self._options.gpu_resource, 0.0))
        pods = [most for name in PODS if (most := left(name, ours.get("pods", 0.0))) is not None]
        if max_gpus is None and not pods:
            return None
        return Quota(
            name=f"ResourceQuota {item['metadata']['name']} of {self._api.namespace}",
            provider=NAME,
            region=self._options.cluster,
            max_gpus=max_gpus,
            max_nodes=min(pods, default=None),
        )

    def _ours(self) -> Amounts:
        """Return what our living pods in the namespace use."""
        ours: Amounts = {}
        selector = labels.selector({labels.MANAGED: labels.US})
        for pod in self._api.list(self._api.pods(), labelSelector=selector, fieldSelector=LIVING):
            for name, amount in pod_requests(pod).items():
                ours[name] = ours.get(name, 0.0) + amount
        return ours


def _is_scoped(item: Mapping[str, Any]) -> bool:
    """Return whether it counts some pods only, such as those of a priority."""
    spec = item.get("spec") or {}
    return bool(spec.get("scopes") or spec.get("scopeSelector"))
