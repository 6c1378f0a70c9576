"""An account with a small market, and the adapter that is connected to it."""

from __future__ import annotations

from datetime import timedelta

import costopt_aws
from costopt.domain.fleet import LaunchRequest
from costopt.domain.market import CapacityType, Pool
from costopt_aws import AwsOptions, AwsProvider
from costopt_aws.bootstrap import NodeSetup
from costopt_aws.clients import Clients
from tests.support.aws.cloud import NOTICE, Cloud
from tests.support.aws.overlay.faults import FAULTS, UNREADABLE, Fault, refuse

REGION = "us-east-1"
OTHER_REGION = "us-west-2"
TYPE = "g6.xlarge"
ZONES = {"use1-az6": "us-east-1a", "use1-az1": "us-east-1b", "usw2-az2": "us-west-2a"}
SPOT = Pool("aws", REGION, "use1-az6", TYPE, CapacityType.SPOT)
EMPTY = Pool("aws", REGION, "use1-az1", TYPE, CapacityType.SPOT)
ELSEWHERE = Pool("aws", OTHER_REGION, "usw2-az2", TYPE, CapacityType.SPOT)
UNKNOWN = Pool("aws", "mars-1", "mars-1a", TYPE, CapacityType.SPOT)


class PlainNodes:
    """A Bootstrap whose nodes do nothing."""

    def __init__(self) -> None:
        self.said = NodeSetup("ami-12c6146b", "#!/bin/sh\ntrue\n", "costopt-node")

    def setup(self, request: LaunchRequest) -> NodeSetup:
        return self.said


class NewAccount:
    """Three spot nodes in SPOT, none in EMPTY, any number in ELSEWHERE and on demand."""

    spot, empty, elsewhere = SPOT, EMPTY, ELSEWHERE
    faults, unreadable = FAULTS, UNREADABLE
    list_call, launch_call, end_call = "DescribeInstances", "RunInstances", "TerminateInstances"
    orphan_kinds: tuple[str, ...] = ("node",)
    """What may not be left after a run; moto leaves the disks of its instances."""

    def __init__(self, cloud: Cloud, clients: Clients) -> None:
        self.cloud = cloud
        self.clock = cloud.clock
        self.clock.stand()
        self.bootstrap = PlainNodes()
        self._clients = clients
        cloud.launches.room("us-east-1a", TYPE, 3)
        cloud.launches.room("us-east-1b", TYPE, 0)
        for zone in ZONES.values():
            cloud.spot.price(zone, TYPE, 0.4)
        for region in (REGION, OTHER_REGION):
            cloud.listed.list(region, TYPE, 0.8)
        self.queues = {REGION: cloud.queue(REGION)}
        self.provider = self.connect()

    def connect(self, clients: Clients | None = None) -> AwsProvider:
        """Another controller of the same account, which remembers nothing."""
        options = AwsOptions.parse(
            {
                "regions": [REGION, OTHER_REGION],
                "instance_types": [TYPE],
                "scored_nodes": None,
                "queues": self.queues,
                "bootstrap": self.bootstrap,
            }
        )
        return costopt_aws.AwsProvider(self.clock, options, clients or self._clients)

    def falls_to(self, pool: Pool, nodes: int, after_s: float) -> None:
        """All but the first ``nodes`` of the pool are taken then, announced two minutes before."""
        interrupts_at = self.clock.now() + timedelta(seconds=after_s)

        def taken() -> list[str]:
            return sorted(
                node.node_id
                for node in self.provider.nodes("me")
                if node.state.is_alive and node.pool == pool
            )[nodes:]

        def announce() -> None:
            for node_id in taken():
                self.cloud.interrupt(node_id)

        def reclaim() -> None:
            for node_id in taken():
                self.cloud.reclaim(node_id)

        self.clock.at(interrupts_at - NOTICE, announce)
        self.clock.at(interrupts_at, reclaim)

    def fail(self, call: str, fault: Fault, *, nth: int = 1, times: int | None = 1) -> None:
        """Let the ``times`` calls of EC2 from the ``nth`` on go wrong; None: all of them."""
        for region in (REGION, OTHER_REGION):
            number = None if times is None else nth
            self.cloud.faults.on("ec2", call, fault, nth=number, times=times, region=region)

    def refuse(self, code: str, status: int) -> Fault:
        """A refusal with this code, in the cloud's own words."""
        return refuse(code, "EC2's own words.", status)

    def permission(self, call: str) -> str:
        """What a refusal of the call names as missing."""
        return f"ec2:{call}"

    def count(self, call: str) -> int:
        """How often EC2 was called so."""
        return self.cloud.faults.calls["ec2", call]

    def alive(self) -> list[str]:
        """The ids of the instances that cost money."""
        return sorted(self.cloud.alive(REGION) + self.cloud.alive(OTHER_REGION))

    def interrupt(self, node_id: str) -> None:
        """Take a spot node, having announced it."""
        self.cloud.interrupt(node_id)
        self.cloud.reclaim(node_id)

    def request(self, nodes: int = 1, key: str = "job-0001", pool: Pool = SPOT) -> LaunchRequest:
        """A launch of the job "job" for the owner "me"."""
        return LaunchRequest("me", "job", pool, nodes, key)
