"""Compute Engine's REST API on a port of the loopback, as far as costopt calls it.

Shapes: https://cloud.google.com/compute/docs/reference/rest/v1. The real client library talks to
it; pages hold two items, so that every list has pages.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import RLock, Thread
from typing import Any
from urllib.parse import parse_qsl, unquote

from werkzeug.serving import WSGIRequestHandler, make_server

from tests.support.aws.cloud_clock import CloudClock
from tests.support.gcp.account_resources import AccountResources
from tests.support.gcp.disks import StoredThings
from tests.support.gcp.faults import DroppedError, Faults
from tests.support.gcp.instances import Instances
from tests.support.gcp.permissions import Access
from tests.support.gcp.placement_policies import PlacementPolicies
from tests.support.gcp.reservations import Reserved
from tests.support.gcp.responses import Answer, Call, RefusedError, Reply
from tests.support.gcp.skus import Skus
from tests.support.gcp.zone_catalog import Place
from tests.support.gcp.zone_operations import ZoneOperations

NOTICE = timedelta(seconds=30)
PAGE = 2
Listed = Callable[[Call], list[Mapping[str, Any]]]
Scopes = Callable[[Call], Mapping[str, Any]]


class Cloud:
    """What a test sets, breaks and looks at. Families of answers are its attributes."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.clock = CloudClock()
        self.faults = Faults()
        self.operations = ZoneOperations(self.clock.now)
        self.instances = Instances(self.clock.now, self.operations)
        self.place = Place()
        self.things = StoredThings()
        self.skus = Skus()
        self.access = Access()
        self.resources = AccountResources(self.access)
        self.placement = PlacementPolicies(
            self.clock.now, self.operations, self.instances.placement_policies
        )
        self.reserved = Reserved(self.instances.naming)
        self.instances.reserved_room = self.reserved.free
        self.instances.has_policy = lambda *key: key in self.placement.all
        self._lock = RLock()
        self._routes = [
            (method, re.compile(f"/compute/v1/{pattern}"), action, answer)
            for method, pattern, action, answer in self._answers()
        ]
        self._routes += [
            (method, re.compile(pattern), action, answer)
            for method, pattern, action, answer in (
                *self._other_apis(),
                *self.resources.answers(),
            )
        ]

    def reset(self) -> None:
        """As new: nothing runs, nothing goes wrong."""
        self.clock.reset()
        for family in (self.faults, self.operations, self.instances, self.place, self.things):
            family.reset()
        for other in (self.skus, self.placement, self.reserved, self.access, self.resources):
            other.reset()

    def region(self, name: str, *zones: str) -> None:
        """A region of these zones."""
        self.place.regions[name] = list(zones)
        self.instances.zones |= frozenset(zones)

    def price(self, region: str, machine_type: str, usd: float, at: datetime | None = None) -> None:
        """The spot price from ``at`` on, by default since a day ago."""
        begin = at or self.clock.now() - timedelta(days=1)
        prices = self.place.spot.setdefault((region, machine_type), [])
        if prices:
            prices[-1] = (prices[-1][0], begin, prices[-1][2])
        prices.append((begin, None, usd))

    def interrupt(self, name: str) -> datetime:
        """Preempt an instance; when it is gone."""
        with self._lock:
            return self.instances.preempt(name, NOTICE)

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        try:
            reply = self._reply(environ)
        except DroppedError:
            connection: socket.socket = environ["werkzeug.socket"]
            connection.shutdown(socket.SHUT_RDWR)
            raise
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(reply.body)))]
        start_response(f"{reply.status} told", headers)
        return [reply.body]

    def _reply(self, environ: Mapping[str, Any]) -> Reply:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        path = unquote(environ["PATH_INFO"])
        for method, pattern, action, answer in self._routes:
            found = pattern.fullmatch(path)
            if method == environ["REQUEST_METHOD"] and found:
                asked = parse_qsl(environ["QUERY_STRING"])
                query = {name: " ".join(v for n, v in asked if n == name) for name, _ in asked}
                content = json.loads(body) if body else {}
                call = Call(action, method, path, found.groupdict(), query, content)
                return self._answered(call, answer)
        return RefusedError(404, "notFound", f"{environ['REQUEST_METHOD']} {path}").reply

    def _answered(self, call: Call, answer: Answer) -> Reply:
        try:
            with self._lock:
                self.operations.settle()
                fault = self.faults.of(call)
                return answer(call) if fault is None else fault(call, answer)
        except RefusedError as error:
            return error.reply

    def _answers(self) -> Iterator[tuple[str, str, str, Answer]]:
        """HTTP method, path, name and answer of every call."""
        project, zone = r"projects/[^/]+", r"projects/[^/]+/zones/(?P<zone>[^/]+)"
        inst, ops, place, things = self.instances, self.operations, self.place, self.things
        yield "POST", f"{zone}/instances/bulkInsert", "instances.bulkInsert", inst.bulk_insert
        yield "POST", f"{zone}/instances", "instances.insert", inst.insert
        yield "GET", f"{zone}/instances", "instances.list", _pages(inst.listed)
        yield (
            "GET",
            f"{project}/aggregated/instances",
            "instances.aggregatedList",
            _scoped(inst.scopes),
        )
        one = f"{zone}/instances/(?P<instance>[^/]+)"
        yield "DELETE", one, "instances.delete", inst.delete
        yield "GET", f"{zone}/operations", "zoneOperations.list", _pages(ops.listed)
        one = f"{zone}/operations/(?P<operation>[^/]+)"
        yield "GET", one, "zoneOperations.get", ops.look
        yield "POST", f"{one}/wait", "zoneOperations.wait", ops.look
        yield "GET", f"{project}/regions/(?P<region>[^/]+)", "regions.get", place.region
        yield "GET", project, "projects.get", place.project
        yield "GET", f"{zone}/machineTypes", "machineTypes.list", _pages(place.machine_types)
        accelerators = _pages(place.accelerator_types)
        yield "GET", f"{zone}/acceleratorTypes", "acceleratorTypes.list", accelerators
        images = f"{project}/global/images/(?P<image>(family/)?[^/]+)"
        yield "GET", images, "images.get", place.image
        advice = f"{project}/regions/(?P<region>[^/]+)/advice/capacityHistory"
        yield "POST", advice, "advice.capacityHistory", place.capacity_history
        advice = f"{project}/regions/(?P<region>[^/]+)/advice/capacity"
        yield "POST", advice, "advice.capacity", place.capacity
        yield "GET", f"{project}/aggregated/disks", "disks.list", _scoped(things.disk_scopes)
        one = f"{zone}/disks/(?P<disk>[^/]+)"
        yield "DELETE", one, "disks.delete", things.delete_disk
        templates = f"{project}/global/instanceTemplates"
        listed = _pages(things.listed_templates)
        yield "GET", templates, "instanceTemplates.list", listed
        policies = f"{project}/regions/(?P<region>[^/]+)/resourcePolicies"
        yield "POST", policies, "resourcePolicies.insert", self.placement.insert
        one = f"{policies}/(?P<policy>[^/]+)"
        yield "DELETE", one, "resourcePolicies.delete", self.placement.delete
        scopes = _scoped(self.placement.scopes)
        yield "GET", f"{project}/aggregated/resourcePolicies", "resourcePolicies.list", scopes
        held = _scoped(self.reserved.scopes)
        yield "GET", f"{project}/aggregated/reservations", "reservations.list", held
        booked = _scoped(self.reserved.future_scopes)
        yield "GET", f"{project}/aggregated/futureReservations", "futureReservations.list", booked
        one = f"{project}/regions/[^/]+/operations/(?P<operation>[^/]+)/wait"
        yield "POST", one, "regionOperations.wait", ops.look
        one = f"{templates}/(?P<template>[^/]+)"
        yield "DELETE", one, "instanceTemplates.delete", things.delete_template

    def _other_apis(self) -> Iterator[tuple[str, str, str, Answer]]:
        """As ``_answers``, of APIs beside Compute Engine."""
        skus, access = self.skus, self.access
        yield "GET", "/v1/services/6F81-5844-456A/skus", "skus.list", skus.listed
        yield "GET", "/v1/projects/[^/]+/services:batchGet", "services.batchGet", access.services
        project = "/v1/projects/(?P<on>[^/:]+):testIamPermissions"
        yield "POST", project, "projects.testIamPermissions", access.tested
        account = "/v1/projects/-/serviceAccounts/(?P<on>[^/:]+):testIamPermissions"
        yield "POST", account, "serviceAccounts.testIamPermissions", access.tested
        bucket = "/storage/v1/b/(?P<on>[^/]+)"
        yield "GET", bucket, "buckets.get", access.bucket
        yield "GET", f"{bucket}/iam/testPermissions", "buckets.testIamPermissions", access.tested


def _pages(listed: Listed) -> Answer:
    """The items two at a time."""

    def answer(call: Call) -> Reply:
        items, first = listed(call), int(call.query.get("pageToken", 0))
        more = {"nextPageToken": str(first + PAGE)} if len(items) > first + PAGE else {}
        return Reply({"items": items[first : first + PAGE], **more})

    return answer


def _scoped(scopes: Scopes) -> Answer:
    """The zones two at a time."""

    def answer(call: Call) -> Reply:
        reported, first = list(scopes(call).items()), int(call.query.get("pageToken", 0))
        more = {"nextPageToken": str(first + PAGE)} if len(reported) > first + PAGE else {}
        return Reply({"items": dict(reported[first : first + PAGE]), **more})

    return answer


class Quiet(WSGIRequestHandler):
    """Does not print the requests it serves, and keeps connections open."""

    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def served_cloud() -> Iterator[Cloud]:
    """A cloud that serves until the context ends."""
    cloud = Cloud()
    server = make_server("127.0.0.1", 0, cloud, threaded=True, request_handler=Quiet)
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    cloud.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield cloud
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
