"""RunInstances with what moto leaves out: client tokens, capacity, and refusals by pool."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import RLock
from typing import Any

from tests.support.aws.overlay.call import Answer, Call, Forward, Reply
from tests.support.aws.overlay.instances import alive, backend, market_of, zone_of_subnet
from tests.support.aws.overlay.refusal import refusal

SpotPool = tuple[str, str, str]
"""(zone name, instance type, "spot" or "on-demand")"""

InstanceHook = Callable[[str, str], None]


@dataclass(frozen=True)
class _Answered:
    """What a client token was answered with."""

    asked: Mapping[str, str]
    reply: Reply
    instance_ids: tuple[str, ...]


class Launches:
    """A pool has room for any number of instances, unless it was said how many or why not."""

    def __init__(self) -> None:
        self.on_start: InstanceHook = _ignore
        self.on_end: InstanceHook = _ignore
        """Called with (region, instance id) when an instance was launched or terminated."""
        self._lock = RLock()
        self._room: dict[SpotPool, int] = {}
        self._refusals: dict[SpotPool, tuple[str, str, int]] = {}
        self._reported: dict[tuple[str, str], _Answered] = {}
        self._hidden: dict[str, int] = {}
        self._hide_for = 0

    def answers(self) -> Mapping[tuple[str, str], Answer]:
        """RunInstances, DescribeInstances and TerminateInstances."""
        return {
            ("ec2", "RunInstances"): self.run_instances,
            ("ec2", "TerminateInstances"): self.terminate_instances,
            ("ec2", "DescribeInstances"): self.describe_instances,
        }

    def reset(self) -> None:
        """All pools have room, and no token was ever used."""
        with self._lock:
            self._room.clear()
            self._refusals.clear()
            self._reported.clear()
            self._hidden.clear()
            self._hide_for = 0
            self.on_start = self.on_end = _ignore

    def room(self, zone: str, instance_type: str, instances: int, market: str = "spot") -> None:
        """The pool holds at most so many instances from now on; those that run, run on."""
        self._room[zone, instance_type, market] = instances

    def refuse(
        self,
        zone: str,
        instance_type: str,
        code: str,
        message: str,
        market: str = "spot",
        status: int = 400,
    ) -> None:
        """The pool answers every launch with this error."""
        self._refusals[zone, instance_type, market] = (code, message, status)

    def hide_new(self, listings: int) -> None:
        """Instances launched from now on are not in the next ``listings`` lists of instances."""
        self._hide_for = listings

    def run_instances(self, call: Call, forward: Forward) -> Reply:
        """Launch as many as there is room for, up to MaxCount; below MinCount none."""
        with self._lock:
            token = call.params.get("ClientToken")
            if (
                token is not None
                and (reported := self._reported.get((call.region, token))) is not None
            ):
                return _again(call, reported)
            reply = self._launch(call, forward)
            if reply.status == 200:
                ids = tuple(re.findall(r"<instanceId>(i-[0-9a-f]+)</instanceId>", reply.text))
                self._hidden |= dict.fromkeys(ids, self._hide_for) if self._hide_for else {}
                for instance_id in ids:
                    self.on_start(call.region, instance_id)
                if token is not None:
                    self._reported[call.region, token] = _Answered(call.params, reply, ids)
            return reply

    def terminate_instances(self, call: Call, forward: Forward) -> Reply:
        """One that has ended stays as it ended, which moto writes again."""
        asked = set(call.numbered("InstanceId"))
        ended = {
            instance: (instance._reason, instance.state_reason)
            for reservation in backend(call.region).reservations.values()
            for instance in reservation.instances
            if instance.id in asked and instance.state == "terminated"
        }
        reply = forward(call)
        for instance_id in asked:
            self.on_end(call.region, instance_id)
        for instance, (reason, state_reason) in ended.items():
            instance._reason, instance.state_reason = reason, state_reason
        return reply

    def describe_instances(self, call: Call, forward: Forward) -> Reply:
        """moto's list, without those that are not visible yet."""
        with self._lock:
            hidden = [i for i, left in self._hidden.items() if left > 0]
            self._hidden = {i: left - 1 for i, left in self._hidden.items() if left > 1}
        asked = set(call.numbered("InstanceId"))
        for instance_id in hidden:
            if instance_id in asked:
                message = f"The instance ID '{instance_id}' does not exist"
                return refusal(call, "InvalidInstanceID.NotFound", message)
        reply = forward(call)
        return Reply.xml(_without(reply.text, hidden), reply.status) if hidden else reply

    def _launch(self, call: Call, forward: Forward) -> Reply:
        pool = _pool_of(call)
        if pool in self._refusals:
            return refusal(call, *self._refusals[pool])
        fewest, most = int(call.params["MinCount"]), int(call.params["MaxCount"])
        free = most if pool not in self._room else self._room[pool] - _used(call.region, pool)
        launched = min(most, max(free, 0))
        if launched < fewest:
            zone, instance_type, _ = pool
            message = (
                f"We currently do not have sufficient {instance_type} capacity in the "
                f"Availability Zone you requested ({zone}). Our system will be working on "
                "provisioning additional capacity."
            )
            return refusal(call, "InsufficientInstanceCapacity", message, 500)
        return forward(call.with_params(MinCount=str(launched), MaxCount=str(launched)))


def _ignore(region: str, instance_id: str) -> None:
    """Instances have no body."""


def _again(call: Call, reported: _Answered) -> Reply:
    """The answer to a token that was used before, as EC2's idempotency rules have it."""
    if {k: v for k, v in reported.asked.items() if k != "DryRun"} != dict(call.params):
        message = "Arguments on this idempotent request are inconsistent with arguments used before"
        return refusal(call, "IdempotentParameterMismatch", message)
    living = {instance.id for instance in alive(call.region)}
    if not living.intersection(reported.instance_ids):
        message = "The client token was used for instances that have been terminated"
        return refusal(call, "IdempotentInstanceTerminated", message)
    return reported.reply


def _pool_of(call: Call) -> SpotPool:
    params = call.params
    subnet = params.get("SubnetId") or params.get("NetworkInterface.1.SubnetId")
    if subnet:
        zone = zone_of_subnet(call.region, subnet)
    else:
        zone = params.get("Placement.AvailabilityZone") or f"{call.region}a"
    market = params.get("InstanceMarketOptions.MarketType", "on-demand")
    return zone, params.get("InstanceType") or _template_type(call), market


def _template_type(call: Call) -> str:
    name = call.params.get("LaunchTemplate.LaunchTemplateName")
    templates = backend(call.region).launch_templates.values()
    found: list[Any] = [t for t in templates if t.name == name]
    return str(found[0].latest_version().instance_type) if found else "m1.small"


def _used(region: str, pool: SpotPool) -> int:
    return sum(
        1 for i in alive(region) if (i.availability_zone, i.instance_type, market_of(i)) == pool
    )


def _without(text: str, instance_ids: list[str]) -> str:
    """A list of instances without some of them."""
    from xml.etree import ElementTree

    tree = ElementTree.fromstring(text)
    namespace = tree.tag.partition("}")[0] + "}"
    ElementTree.register_namespace("", namespace.strip("{}"))
    for instances in tree.iter(f"{namespace}instancesSet"):
        for item in list(instances):
            if item.findtext(f"{namespace}instanceId") in instance_ids:
                instances.remove(item)
    return ElementTree.tostring(tree, encoding="unicode")
