"""What an account file may say of a cluster: how to reach it, its machines, and how pods start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from costopt.domain.market import CapacityType
from costopt.provider.options import Listed, NodeCount, OptionModel, Seconds, Text, matches
from costopt.provider.site import SiteOptions

Name = Annotated[str, matches(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "the name of an object")]
LabelKey = Annotated[str, matches(r"([a-z0-9.-]+/)?[A-Za-z0-9._-]+", "the key of a label")]
Folder = Annotated[str, matches(r"/[^:]+", "a folder, such as /data")]
Dollars = Annotated[float, Field(ge=0, le=1e6, strict=False)]
Capacity = Annotated[CapacityType, Field(strict=False)]
Gang = Literal["kueue", "volcano"]
DAY_S = 86_400.0


class Toleration(OptionModel):
    """As in a pod's manifest."""

    key: LabelKey | None = None
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None

    def manifest(self) -> dict[str, Any]:
        """Return it as the API takes it."""
        return self.model_dump(exclude_none=True)


class AutoscaledNodes(OptionModel):
    """What an autoscaler brings of an instance type where no NodePool of Karpenter says so."""

    zones: Listed[Text] = Field(default=(), description="zones; default: any of the cluster")
    capacity_types: Annotated[Listed[Capacity], Field(min_length=1)] = Field(
        default=(CapacityType.ON_DEMAND,), description="a list such as [spot, on_demand]"
    )
    max_nodes: NodeCount | None = Field(default=None, description="at most so many")


class KubernetesOptions(SiteOptions):
    """``machines`` and ``payloads`` come from costopt, the rest from the account file."""

    kubeconfig: Text | None = Field(
        default=None,
        description="a kubeconfig file; default: the pod's own service account, then KUBECONFIG, "
        "then ~/.kube/config",
    )
    context: Text | None = Field(default=None, description="a context of it; default: the current")
    namespace: Name | None = Field(
        default=None, description="where pods are made; default: that of the context"
    )
    timeout_s: Seconds = Field(default=30.0, description="seconds for an answer of the API")
    image: Text | None = Field(
        default=None, description="the image of pods, with Python 3.11 or newer and PyTorch"
    )
    agent_image: Text | None = Field(
        default=None,
        description="an image with costopt, which brings it to pods; default: that of the pods",
    )
    image_pull_secrets: Listed[Name] = Field(
        default=(), description="a list of secrets of the namespace, logins of the images' registry"
    )
    service_account: Name | None = Field(
        default=None, description="pods' service account, with which they reach the store"
    )
    env: Mapping[Text, str] = Field(
        default_factory=dict, description="a mapping of environment variables of pods"
    )
    claims: Mapping[Name, Folder] = Field(
        default_factory=dict, description="a mapping of PersistentVolumeClaim to a pod's folder"
    )
    run_as_user: int = Field(default=1000, ge=1, le=2**31, description="the user of pods, not root")
    priority_class: Name | None = Field(default=None, description="the priority class of pods")
    tolerations: Listed[Toleration] = Field(
        default=(), description="a list of tolerations; taints of the GPU resource always are"
    )
    gpu_resource: LabelKey = Field(default="nvidia.com/gpu", description="the name of GPUs")
    node_type_label: LabelKey = Field(
        default="node.kubernetes.io/instance-type",
        description="the label whose value is a node's instance type or node type",
    )
    share: float = Field(
        default=0.85,
        gt=0,
        le=1,
        description="of a machine's CPUs and memory, what a pod asks for; the rest is the system's",
    )
    autoscaled: Mapping[Text, AutoscaledNodes] = Field(
        default_factory=dict,
        description="a mapping of instance type to what an autoscaler brings, beyond the NodePools",
    )
    prices: Mapping[Text, Dollars] = Field(
        default_factory=dict,
        description="a mapping of TYPE or TYPE/CAPACITY_TYPE to dollars per node-hour",
    )
    cloud_options: Mapping[Text, Any] | None = Field(
        default=None,
        description="options of the cloud's own provider, whose prices then count; default: the "
        "dated prices of the catalogue",
    )
    wait_s: Seconds = Field(
        default=600.0, description="seconds that a launch waits for an autoscaler"
    )
    standing_wait_s: Seconds = Field(
        default=30.0, description="seconds that a launch waits for room on standing nodes"
    )
    grace_s: int = Field(default=120, ge=10, le=3600, description="seconds to save in")
    max_run_s: float = Field(
        default=7 * DAY_S,
        ge=3600,
        le=365 * DAY_S,
        strict=False,
        description="seconds after which a pod ends in any case",
    )
    gang: Gang | None = Field(default=None, description="what starts a gang at once, if anything")
    queue: Name | None = Field(default=None, description="the queue of kueue or volcano")

    @model_validator(mode="after")
    def _kueue_has_a_queue(self) -> Self:
        if self.gang == "kueue" and self.queue is None:
            raise PydanticCustomError("option", "gang: kueue needs queue: NAME")
        return self

    @property
    def cloud_provider(self) -> str | None:
        """Return the name of the cloud whose machines these are, None for machines of its own."""
        return None if self.cloud is None else self.cloud.partition("/")[0]

    @property
    def cloud_region(self) -> str:
        """Return the cloud's region, "" for machines of the cluster's own."""
        return "" if self.cloud is None else self.cloud.partition("/")[2]
