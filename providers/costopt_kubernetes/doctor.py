"""Checks whether costopt can run jobs in a cluster, before anything is launched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from costopt.domain.errors import ProviderError
from costopt.domain.fleet import LaunchRequest
from costopt.domain.market import CapacityType
from costopt.domain.runtime import Payload, StoredFile
from costopt.provider.base import Check, CheckStatus
from costopt_kubernetes.clients import ApiClient
from costopt_kubernetes.machines import Place
from costopt_kubernetes.offers import ClusterCapacity
from costopt_kubernetes.options import KubernetesOptions
from costopt_kubernetes.pod_request import PodRequest
from costopt_kubernetes.quantities import MIB
from costopt_kubernetes.quotas import NamespaceQuotas

RBAC = "rbac.authorization.k8s.io"
REVIEWS = "apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
NAME = "costopt"


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on a resource; ``purpose`` is what does not work without, "" where nothing does."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    purpose: str = ""

    @property
    def rule(self) -> dict[str, list[str]]:
        """Return it as a rule of a Role."""
        return {"apiGroups": [self.group], "resources": [self.resource], "verbs": list(self.verbs)}


NAMESPACED = (
    Right("", "pods", ("create", "get", "list", "patch", "delete")),
    Right("", "events", ("list",), "why a pod was taken that left unseen"),
    Right("", "resourcequotas", ("list",), "plans within the namespace's quotas"),
)
VOLCANO = Right("scheduling.volcano.sh", "podgroups", ("create",))
CLUSTER_WIDE = (
    Right("", "nodes", ("list", "get")),
    Right("", "pods", ("list",), "how many pods standing nodes still take"),
    Right("karpenter.sh", "nodepools", ("list",), "what Karpenter may bring"),
)


class ClusterDoctor:
    """Asks the server itself what it allows, and whether it would accept a pod."""

    def __init__(
        self, api: ApiClient, options: KubernetesOptions, capacity: ClusterCapacity
    ) -> None:
        self._api = api
        self._options = options
        self._capacity = capacity

    def checks(self, owner: str, store: str | None, now: datetime) -> Iterator[Check]:
        """Yield the findings; without an answer of the cluster nothing else is checked."""
        try:
            version = self._api.version()
        except ProviderError as error:
            yield Check.broken("cluster", error)
            return
        detail = f"{self._api.server}, {version}, namespace {self._api.namespace}"
        yield Check("cluster", CheckStatus.OK, detail)
        yield from self._rights()
        yield Check.of("machines", self._machines)
        yield Check.of("quotas", self._quotas)
        yield from self._image()
        yield Check.of("pod", partial(self._pod, owner, now))
        if store is None:
            hint = "add store: to the account file, such as s3://bucket/costopt"
            yield Check("store", CheckStatus.MISSING, "the account names none", hint)
        else:
            yield Check("store", CheckStatus.OK, f"{store}: pods need the right to it")

    def missing_roles(self) -> dict[str, Any]:
        """Return as a List for kubectl the Role and ClusterRole of what is not allowed yet, with
        bindings to a service account. Raise ProviderError."""
        namespace = self._api.namespace
        items: list[dict[str, Any]] = []
        for kind, rights, place in (
            ("Role", self._namespaced, namespace),
            ("ClusterRole", CLUSTER_WIDE, None),
        ):
            denied = [right for right in rights if self._denied(right, place)]
            if denied:
                items += _role(kind, denied, place, namespace)
        return {"apiVersion": "v1", "kind": "List", "items": items}

    @property
    def _namespaced(self) -> tuple[Right, ...]:
        return (*NAMESPACED, VOLCANO) if self._options.gang == "volcano" else NAMESPACED

    def _rights(self) -> Iterator[Check]:
        for rights, place in ((self._namespaced, self._api.namespace), (CLUSTER_WIDE, None)):
            where = "in the cluster" if place is None else f"in {place}"
            for right in rights:
                name = f"{right.resource} {where}"
                yield Check.of(name, partial(self._right, right, place))

    def _right(self, right: Right, place: str | None, name: str) -> Check:
        denied = self._denied(right, place)
        if not denied:
            return Check(name, CheckStatus.OK, f"allowed: {', '.join(right.verbs)}")
        verdict = CheckStatus.MISSING if right.purpose else CheckStatus.BROKEN
        lost = f"; without, unknown: {right.purpose}" if right.purpose else ""
        hint = "`costopt doctor kubernetes --rbac | kubectl apply -f -` as an administrator"
        return Check(name, verdict, f"not allowed: {', '.join(denied)}{lost}", hint)

    def _denied(self, right: Right, place: str | None) -> tuple[str, ...]:
        return tuple(verb for verb in right.verbs if not self._allowed(right, verb, place))

    def _allowed(self, right: Right, verb: str, place: str | None) -> bool:
        wanted = {"group": right.group, "resource": right.resource, "verb": verb}
        if place is not None:
            wanted["namespace"] = place
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": wanted},
        }
        return bool(self._api.create(REVIEWS, body)["status"]["allowed"])

    def _machines(self, name: str) -> Check:
        rooms = self._capacity.rooms()
        if not rooms:
            return Check(
                name,
                CheckStatus.BROKEN,
                "no node and no NodePool is of a known type",
                "name the cluster's cloud:, or its node_types: and node_type_label:",
            )
        shown = [
            f"{pool.instance_type} {pool.capacity_type.value} in {Place.of(pool).zone or 'any'}"
            for pool in sorted(rooms)
        ]
        more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
        return Check(name, CheckStatus.OK, ", ".join(shown[:5]) + more)

    def _quotas(self, name: str) -> Check:
        quotas = NamespaceQuotas(self._api, self._options).now()
        said = [f"{q.name}: {q.max_gpus if q.max_gpus is not None else '-'} GPUs" for q in quotas]
        return Check(name, CheckStatus.OK, ", ".join(said) or "none in the namespace")

    def _image(self) -> Iterator[Check]:
        if self._options.image is None:
            hint = "write image: under kubernetes: in the account file"
            yield Check("image", CheckStatus.MISSING, "none is named for pods", hint)
        else:
            brings = self._options.agent_image or "itself"
            yield Check("image", CheckStatus.OK, f"{self._options.image}; costopt from {brings}")

    def _pod(self, owner: str, now: datetime, name: str) -> Check:
        """Let the server judge a pod without making it: quotas, security, policies."""
        file = StoredFile("payloads/doctor/0/file", "0" * 64, 0)
        payload = Payload("doctor", "file:/nowhere", file, file)
        options = self._options.model_copy(
            update={"payloads": {"doctor": payload}, "image": self._options.image or NAME}
        )
        pool = Place("", "doctor", CapacityType.ON_DEMAND).pool(options.cluster, "doctor")
        request = LaunchRequest(owner, "doctor", pool, 1, now.isoformat())
        size = {"cpu": 0.5, "memory": 512.0 * MIB, "pods": 1.0}
        (pod,) = PodRequest(request, options, self._api.namespace, size, 0.0).pods()
        self._api.create(self._api.pods(), pod, dry_run=True)
        return Check(name, CheckStatus.OK, "the server would accept one")


def _role(
    kind: str, rights: list[Right], place: str | None, namespace: str
) -> Iterator[dict[str, Any]]:
    where = {} if place is None else {"namespace": place}
    yield {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"name": NAME, **where},
        "rules": [right.rule for right in rights],
    }
    yield {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": NAME, **where},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }
