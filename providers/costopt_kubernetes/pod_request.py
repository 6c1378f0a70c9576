"""The manifest of a launch's pods: pure, and admitted by the restricted Pod Security Standard.

https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from costopt.domain.fleet import LaunchRequest
from costopt_kubernetes import labels
from costopt_kubernetes.bootstrap import containers
from costopt_kubernetes.machines import ZONE_LABEL, Place, node_affinity, tolerations
from costopt_kubernetes.options import KubernetesOptions
from costopt_kubernetes.quantities import MIB, Amounts

KUEUE = "kueue.x-k8s.io/"
VOLCANO_GROUP = "scheduling.k8s.io/group-name"


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What a launch asks the cluster for; ``wanted`` is what each pod needs of its node."""

    request: LaunchRequest
    options: KubernetesOptions
    namespace: str
    wanted: Amounts
    usd_per_hour: float

    def pods(self) -> list[dict[str, Any]]:
        """Return the manifests, which differ in their names alone. Raise BadRequestError."""
        fetch, train = containers(self.request, self.options, self.wanted)
        spec = self._spec(fetch, train)
        return [
            {"apiVersion": "v1", "kind": "Pod", "metadata": self._metadata(name), "spec": spec}
            for name in labels.pod_names(self.request)
        ]

    def pod_group(self, pods: list[dict[str, Any]]) -> dict[str, Any]:
        """Return volcano's group of these pods, which goes when the last of them has gone."""
        name = labels.launch_of(self.request.owner, self.request.key)
        owners = [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod["metadata"]["name"],
                "uid": pod["metadata"]["uid"],
            }
            for pod in pods
        ]
        spec: dict[str, Any] = {"minMember": self.request.nodes}
        if self.options.queue is not None:
            spec["queue"] = self.options.queue
        return {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": labels.labels(self.request),
                "ownerReferences": owners,
            },
            "spec": spec,
        }

    def _metadata(self, name: str) -> dict[str, Any]:
        request, gang = self.request, self.options.gang
        found_labels = labels.labels(request)
        notes = labels.notes(request, self.usd_per_hour)
        launch = found_labels[labels.LAUNCH]
        if gang == "kueue" and self.options.queue is not None:
            found_labels[f"{KUEUE}queue-name"] = self.options.queue
            found_labels[f"{KUEUE}pod-group-name"] = launch
            notes[f"{KUEUE}pod-group-total-count"] = str(request.nodes)
        if gang == "volcano":
            notes[VOLCANO_GROUP] = launch
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": found_labels,
            "annotations": notes,
        }

    def _spec(self, fetch: dict[str, Any], train: dict[str, Any]) -> dict[str, Any]:
        options = self.options
        optional = {
            "serviceAccountName": options.service_account,
            "priorityClassName": options.priority_class,
            "schedulerName": "volcano" if options.gang == "volcano" else None,
            "imagePullSecrets": [{"name": name} for name in options.image_pull_secrets] or None,
        }
        user = options.run_as_user
        return {
            **{name: value for name, value in optional.items() if value is not None},
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": options.grace_s,
            # The dead man's switch: a pod ends even where no controller is left to end it.
            "activeDeadlineSeconds": round(options.max_run_s),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "affinity": self._affinity(),
            "tolerations": tolerations(options),
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": user,
                "runAsGroup": user,
                "fsGroup": user,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "initContainers": [fetch],
            "containers": [train],
            "volumes": self._volumes(),
        }

    def _affinity(self) -> dict[str, Any]:
        pool = self.request.pool
        affinity: dict[str, Any] = {"nodeAffinity": node_affinity(pool, self.options)}
        if not Place.of(pool).zone and self.request.nodes > 1:
            # A gang within one zone, whichever: between zones traffic is slow, and costs.
            launch = labels.launch_of(self.request.owner, self.request.key)
            selected = {"matchLabels": {labels.LAUNCH: launch}}
            term = {"labelSelector": selected, "topologyKey": ZONE_LABEL}
            affinity["podAffinity"] = {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "podAffinityTerm": term}
                ]
            }
        return affinity

    def _volumes(self) -> list[dict[str, Any]]:
        half = f"{int(self.wanted['memory'] / 2) // MIB}Mi"
        claims = [
            {"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": claim}}
            for number, claim in enumerate(self.options.claims)
        ]
        shm = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": half}}
        return [{"name": "costopt", "emptyDir": {}}, shm, *claims]
