"""Pods as they are asked for: by the newest schemas, and as the restricted standard admits them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kubernetes_validate import validate

from costopt.domain.errors import BadRequestError
from costopt.domain.fleet import LaunchRequest
from costopt.domain.market import CapacityType, Pool
from costopt_kubernetes import KubernetesOptions
from costopt_kubernetes.pod_request import PodRequest
from costopt_kubernetes.quantities import Amounts
from tests.support.kubernetes.cluster import PAYLOAD

NEWEST = "1.37"
POOL = Pool("kubernetes", "test", "zone-a", "g5.xlarge", CapacityType.SPOT)
WANTED: Amounts = {"cpu": 3.4, "memory": 13.0 * 2**30, "nvidia.com/gpu": 1.0, "pods": 1.0}


def asked(pool: Pool = POOL, nodes: int = 2, **more: Any) -> PodRequest:
    options = KubernetesOptions.parse(
        {"cluster": "test", "image": "train:1", "payloads": {"job": PAYLOAD}, **more}
    )
    request = LaunchRequest("me", "job", pool, nodes, "key")
    return PodRequest(request, options, "team", WANTED, 0.25)


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "full": {
        "agent_image": "costopt:1",
        "service_account": "trainer",
        "image_pull_secrets": ["registry-login", "other"],
        "claims": {"data.set": "/data"},
        "env": {"AWS_REGION": "us-east-1"},
        "priority_class": "batch",
        "tolerations": [{"key": "team", "value": "a", "effect": "NoSchedule"}],
    },
    "kueue": {"gang": "kueue", "queue": "team-a"},
    "volcano": {"gang": "volcano"},
}


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_every_pod_is_valid_by_the_newest_schema(variant: str) -> None:
    for pod in asked(**VARIANTS[variant]).pods():
        validate(pod, NEWEST, strict=True)


def test_pods_are_pulled_with_the_logins_that_the_account_names() -> None:
    spec = asked(image_pull_secrets=["registry-login", "other"]).pods()[0]["spec"]
    assert spec["imagePullSecrets"] == [{"name": "registry-login"}, {"name": "other"}]
    assert "imagePullSecrets" not in asked().pods()[0]["spec"]


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_the_restricted_standard_admits_every_pod(variant: str) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    spec = asked(**VARIANTS[variant]).pods()[0]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert {key for volume in spec["volumes"] for key in volume} <= {
        "name",
        "emptyDir",
        "persistentVolumeClaim",
    }
    for container in (*spec["initContainers"], *spec["containers"]):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert not {"privileged", "procMount"} & context.keys()
        assert not any("hostPort" in port for port in container.get("ports", ()))


def test_requests_equal_limits_so_that_pods_are_evicted_last() -> None:
    spec = asked().pods()[0]["spec"]
    for container in (*spec["initContainers"], *spec["containers"]):
        resources = container["resources"]
        assert resources["requests"] == resources["limits"]
        assert {"cpu", "memory"} <= resources["limits"].keys()
    assert spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_a_pod_ends_and_is_not_started_again() -> None:
    spec = asked(max_run_s=86_400, grace_s=60).pods()[0]["spec"]
    assert (spec["restartPolicy"], spec["activeDeadlineSeconds"]) == ("Never", 86_400)
    assert spec["terminationGracePeriodSeconds"] == 60


def test_names_follow_from_owner_and_key_alone() -> None:
    one, other = asked(), asked(nodes=3)
    assert [p["metadata"]["name"] for p in one.pods()] == [
        p["metadata"]["name"] for p in other.pods()
    ][:2]
    foreign = replace(one, request=replace(one.request, owner="you"))
    assert foreign.pods()[0]["metadata"]["name"] != one.pods()[0]["metadata"]["name"]


def test_a_queue_gets_the_whole_gang() -> None:
    (first, second) = asked(gang="kueue", queue="team-a").pods()
    assert first["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    groups = {p["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] for p in (first, second)}
    assert len(groups) == 1
    notes = first["metadata"]["annotations"]
    assert notes["kueue.x-k8s.io/pod-group-total-count"] == "2"


def test_volcano_gets_a_group_that_goes_with_its_pods() -> None:
    order = asked(gang="volcano", queue="team-a")
    made = [{"metadata": {"name": f"pod-{n}", "uid": str(n)}} for n in range(2)]
    group = order.pod_group(made)
    assert group["spec"] == {"minMember": 2, "queue": "team-a"}
    assert [owner["uid"] for owner in group["metadata"]["ownerReferences"]] == ["0", "1"]
    (pod, _) = order.pods()
    assert pod["spec"]["schedulerName"] == "volcano"
    name = pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
    assert name == group["metadata"]["name"]


@pytest.mark.parametrize("lacking", ["image", "payloads"])
def test_without_an_image_or_a_job_nothing_can_be_started(lacking: str) -> None:
    with pytest.raises(BadRequestError):
        asked(POOL, 2, **{lacking: None if lacking == "image" else {}}).pods()
