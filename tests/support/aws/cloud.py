"""A test cloud over real HTTP: moto behind the overlay, on a port of the loopback."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from functools import cache
from threading import Thread
from typing import Any
from unittest.mock import patch

import boto3
from botocore.config import Config
from botocore.loaders import JSONFileLoader
from moto.core import responses
from moto.ec2.models import elastic_block_store, instances, launch_templates
from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import BaseWSGIServer, make_server

from tests.support.aws.cloud_clock import CloudClock
from tests.support.aws.overlay.account_limits import AccountLimits
from tests.support.aws.overlay.application import Overlay
from tests.support.aws.overlay.instances import alive, backend
from tests.support.aws.overlay.launches import Launches
from tests.support.aws.overlay.list_prices import ADVISOR, PRICE_FILES, ListPrices
from tests.support.aws.overlay.metadata import ROOT, Metadata
from tests.support.aws.overlay.placement_groups import PlacementGroups
from tests.support.aws.overlay.spot_market import SpotMarket

NOTICE = timedelta(minutes=2)
SPOT_TERMINATION = "Server.SpotInstanceTermination"
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTDAEMON",
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-daemon",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
}
METHOD_NAMES = cache(responses.method_names_from_class)  # type: ignore[attr-defined]
"""Moto lists the methods of a service's class for each call."""
MODELS = cache(JSONFileLoader().load_file)
"""Every session of boto3 reads the services' models again: EC2's has four megabytes."""


class Cloud:
    """What a test sets, breaks and looks at. Families of answers are its attributes."""

    def __init__(self, overlay: Overlay, endpoint: str) -> None:
        self.overlay = overlay
        self.endpoint = endpoint
        self.faults = overlay.faults
        self._clients: dict[tuple[str, str], Any] = {}
        self.launches = Launches()
        self.metadata = Metadata()
        self.spot = SpotMarket()
        self.listed = ListPrices()
        self.limits = AccountLimits()
        self.groups = PlacementGroups()
        self.clock = CloudClock()
        """The time that EC2 stamps on instances and events."""
        for family in (
            self.launches,
            self.metadata,
            self.spot,
            self.listed,
            self.limits,
            self.groups,
        ):
            overlay.add(family)

    def environment(self) -> dict[str, str]:
        """The environment variables with which boto3, here or in a child, finds this cloud."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "XDG_CACHE_HOME": "/dev/null",
            "COSTOPT_AWS_ADVISOR_URL": self.endpoint + ADVISOR,
            "COSTOPT_AWS_PRICE_FILE_URL": self.endpoint + PRICE_FILES,
            **KEYS,
        }

    def metadata_endpoint(self, instance_id: str) -> str:
        """AWS_EC2_METADATA_SERVICE_ENDPOINT of a node."""
        return f"{self.endpoint}{ROOT}/{instance_id}/"

    def client(self, service: str, region: str = "us-east-1") -> Any:
        """A boto3 client of the test's own, which tries once."""
        if (service, region) not in self._clients:
            self._clients[service, region] = self._new_client(service, region)
        return self._clients[service, region]

    def _new_client(self, service: str, region: str) -> Any:
        return boto3.client(
            service,
            region_name=region,
            endpoint_url=self.endpoint,
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"total_max_attempts": 1}),
        )

    def reset(self) -> None:
        """As new: nothing runs, nothing goes wrong."""
        self.overlay.reset()
        self.clock.reset()

    def alive(self, region: str = "us-east-1") -> list[str]:
        """The ids of the instances that cost money, in launch order."""
        return [instance.id for instance in alive(region)]

    def queue(self, region: str = "us-east-1") -> str:
        """The URL of a new queue that EventBridge feeds with what EC2 has to say."""
        sqs, events = self.client("sqs", region), self.client("events", region)
        url: str = sqs.create_queue(QueueName="costopt-events")["QueueUrl"]
        asked = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        pattern = json.dumps({"source": ["aws.ec2"]})
        events.put_rule(Name="costopt", EventPattern=pattern)
        arn = asked["Attributes"]["QueueArn"]
        events.put_targets(Rule="costopt", Targets=[{"Id": "queue", "Arn": arn}])
        return url

    def tell(self, detail_type: str, detail: dict[str, str], region: str = "us-east-1") -> None:
        """Let EC2 send an event, such as "EC2 Spot Instance Interruption Warning"."""
        entry = {
            "Source": "aws.ec2",
            "DetailType": detail_type,
            "Detail": json.dumps(detail),
            "Time": self.clock.now(),
        }
        self.client("events", region).put_events(Entries=[entry])

    def interrupt(self, instance_id: str, region: str = "us-east-1") -> datetime:
        """Announce that the instance is taken in two minutes, as EC2 does: when it strikes.

        The node reads it in its metadata, the account in its events. ``strike`` carries it out.
        """
        interrupts_at = self.clock.now() + NOTICE
        self.metadata.notice(instance_id, interrupts_at)
        self.tell(
            "EC2 Spot Instance Interruption Warning",
            {"instance-id": instance_id, "instance-action": "terminate"},
            region,
        )
        return interrupts_at

    def reclaim(self, instance_id: str, region: str = "us-east-1") -> None:
        """Take the instance, announced or not."""
        instance = backend(region).get_instance(instance_id)
        self.launches.on_end(region, instance_id)
        instance.terminate()
        instance._reason = SPOT_TERMINATION
        instance.state_reason.code = SPOT_TERMINATION
        instance.state_reason.message = f"{SPOT_TERMINATION}: Spot instance termination"
        self.tell(
            "EC2 Instance State-change Notification",
            {"instance-id": instance_id, "state": "terminated"},
            region,
        )


class Quiet(MotoRequestHandler):
    """Does not print the requests it serves, and keeps connections open."""

    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def served_cloud() -> Iterator[Cloud]:
    """A cloud that serves until the context ends."""
    overlay = Overlay()
    server = make_server("127.0.0.1", 0, overlay, threaded=True, request_handler=Quiet)
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    cloud = Cloud(overlay, f"http://127.0.0.1:{server.server_port}")
    # Most of the time of a reset goes into images that no test needs.
    with patch.dict(os.environ, {"MOTO_EC2_LOAD_DEFAULT_AMIS": "false"}), ExitStack() as patched:
        patched.enter_context(patch.object(responses, "method_names_from_class", METHOD_NAMES))
        patched.enter_context(
            patch.object(JSONFileLoader, "load_file", lambda _, path: MODELS(path))
        )
        for stamped in (elastic_block_store, instances, launch_templates):
            patched.enter_context(patch.object(stamped, "utcnow", cloud.clock.naive_now))
        try:
            yield cloud
        finally:
            _stop(overlay, server, thread)


def _stop(overlay: Overlay, server: BaseWSGIServer, thread: Thread) -> None:
    overlay.faults.reset()
    server.shutdown()
    thread.join()
    server.server_close()
