"""A project with a small market, and the adapter that is connected to it."""

from __future__ import annotations

from datetime import timedelta

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.fleet import LaunchRequest
from costopt.domain.market import CapacityType, Pool
from costopt_gcp import GcpOptions, GcpProvider
from costopt_gcp.bootstrap import NodeSetup
from costopt_gcp.clients import Clients, Timeouts
from tests.support.gcp.cloud import NOTICE, Cloud
from tests.support.gcp.faults import FAULTS, UNREADABLE, Fault, refuse

REGION = "us-central1"
OTHER_REGION = "europe-west4"
TYPE = "g2-standard-4"
SPOT = Pool("gcp", REGION, "us-central1-a", TYPE, CapacityType.SPOT)
EMPTY = Pool("gcp", REGION, "us-central1-b", TYPE, CapacityType.SPOT)
ELSEWHERE = Pool("gcp", OTHER_REGION, "europe-west4-a", TYPE, CapacityType.SPOT)
UNKNOWN = Pool("gcp", "mars-1", "mars-1a", TYPE, CapacityType.SPOT)


class PlainNodes:
    """A Bootstrap whose nodes do nothing."""

    def __init__(self) -> None:
        self.said = NodeSetup("projects/x/global/images/y", "#!/bin/sh\ntrue\n", "n@p.example")

    def setup(self, request: LaunchRequest) -> NodeSetup:
        return self.said


def listed(provider: str, region: str, instance_type: str) -> Estimate | None:
    """A list in which everything costs 0.8 dollars an hour."""
    return Estimate.exact(0.8, Basis.LISTED, "a list")


class NewAccount:
    """Three spot nodes in SPOT, none in EMPTY, any number in ELSEWHERE and on demand."""

    spot, empty, elsewhere = SPOT, EMPTY, ELSEWHERE
    faults, unreadable = FAULTS, UNREADABLE
    list_call, launch_call = "instances.aggregatedList", "instances.bulkInsert"
    end_call = "instances.delete"
    orphan_kinds: tuple[str, ...] = ("node", "disk", "image", "address")

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.clock = cloud.clock
        self.clock.stand()
        self.bootstrap = PlainNodes()
        cloud.region(REGION, "us-central1-a", "us-central1-b")
        cloud.region(OTHER_REGION, "europe-west4-a")
        cloud.instances.room("us-central1-a", TYPE, 3)
        cloud.instances.room("us-central1-b", TYPE, 0)
        for region in (REGION, OTHER_REGION):
            cloud.price(region, TYPE, 0.25)
        self.provider = self.connect()

    def clients(self, **more: float) -> Clients:
        """Clients that try once and do not wait between looks at an operation."""
        timeouts = Timeouts(read_s=10.0, launch_s=10.0, poll_s=0.0)
        return Clients("project-1", self.cloud.endpoint, timeouts, repeat_reads_s=0.0)

    def connect(self, clients: Clients | None = None, **more: object) -> GcpProvider:
        """Another controller of the same project, which remembers nothing."""
        options = GcpOptions.parse(
            {
                "regions": [REGION, OTHER_REGION],
                "instance_types": [TYPE],
                "bootstrap": self.bootstrap,
                "list_prices": listed,
                **more,
            }
        )
        return GcpProvider(self.clock, options, clients or self.clients())

    def falls_to(self, pool: Pool, nodes: int, after_s: float) -> None:
        """All but the first ``nodes`` of the pool are taken then, announced 30 s before."""

        def announce() -> None:
            living = [n for n in self.provider.nodes("me") if n.state.is_alive and n.pool == pool]
            for node_id in sorted(node.node_id for node in living)[nodes:]:
                self.cloud.interrupt(node_id)

        self.clock.at(self.clock.now() + timedelta(seconds=after_s) - NOTICE, announce)

    def fail(self, call: str, fault: Fault, *, nth: int = 1, times: int | None = 1) -> None:
        """Let the ``times`` calls from the ``nth`` on go wrong; None: all of them."""
        self.cloud.faults.on(call, fault, nth=nth, times=times)

    def refuse(self, code: str, status: int) -> Fault:
        """A refusal with this reason, in the cloud's own words."""
        return refuse(code, status)

    def permission(self, call: str) -> str:
        """What a refusal of the call names as missing."""
        return f"compute.{call}".replace("bulkInsert", "create")

    def count(self, call: str) -> int:
        """How often the cloud was called so."""
        return self.cloud.faults.calls[call]

    def alive(self) -> list[str]:
        """The names of the instances that cost money."""
        return self.cloud.instances.alive()

    def interrupt(self, node_id: str) -> None:
        """Take a spot node, having announced it."""
        self.cloud.interrupt(node_id)

    def request(self, nodes: int = 1, key: str = "job-0001", pool: Pool = SPOT) -> LaunchRequest:
        """A launch of the job "job" for the owner "me"."""
        return LaunchRequest("me", "job", pool, nodes, key)
