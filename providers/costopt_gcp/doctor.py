"""Checks whether a Google Cloud project can run jobs, before anything is launched.

Among other things it reads the store's bucket, and which APIs the project has enabled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from costopt.domain.errors import ForbiddenError, ProviderError
from costopt.domain.market import CapacityType
from costopt.provider.base import ALL_LAUNCHES, Check, CheckStatus
from costopt_gcp.bootstrap import ImageResolver, bucket_of
from costopt_gcp.clients import Clients, WebApi
from costopt_gcp.options import GcpOptions
from costopt_gcp.quotas import AccountQuotas, Regions
from costopt_gcp.roles import (
    ACCOUNT,
    BUCKET,
    PROJECT,
    Permissions,
    daemon_condition,
    node_conditions,
    read_role,
    role_with,
    setup_roles,
)


class Doctor:
    """Runs the checks in order, from what everything needs to what only nodes need."""

    def __init__(self, clients: Clients, options: GcpOptions) -> None:
        self._clients = clients
        self._options = options
        self._regions = Regions(clients)
        self._quotas = AccountQuotas(clients, self._regions)
        self._allowed = Permissions(clients)
        self._images = ImageResolver(clients, options.image)

    def policies(self, owner: str, store: str | None) -> Mapping[str, object]:  # noqa: ARG002
        """By role: the custom roles of the controller and of nodes, and the conditions under which
        they are to be granted."""
        said = self._options
        reads = {"secrets": said.secrets, "repositories": said.repositories}
        return {
            **setup_roles(None if store is None else bucket_of(store)),
            "daemon-condition": daemon_condition(),
            **({} if store is None else _node_conditions(store)),
            **{f"node-{kind}": read_role(kind, names) for kind, names in reads.items() if names},
        }

    def checks(self, owner: str, store: str | None, now: datetime) -> Iterator[Check]:  # noqa: ARG002
        """Yield the findings; without credentials nothing else is checked."""
        try:
            detail = f"{self._clients.identity()} in {self._clients.project}"
        except ProviderError as error:
            yield Check.broken("credentials", error, ALL_LAUNCHES)
            return
        yield Check("credentials", CheckStatus.OK, detail)
        yield from self._apis()
        yield from self._permissions()
        for region in self._options.regions:
            of_region = partial(self._region, region, now)
            check = Check.of(f"region {region}", of_region, blocks=region)
            yield check
            if check.verdict is CheckStatus.OK:
                yield Check.of(f"quota {region}", partial(self._quota, region, now))
        yield Check.of("image", partial(self._image, now), blocks=ALL_LAUNCHES)
        yield from self._account()
        yield from self._store(store)

    def _apis(self) -> Iterator[Check]:
        try:
            disabled = disabled_apis(self._clients, (*NEEDED, *USEFUL))
        except ProviderError as error:
            yield Check.unknown("APIs", error)
            return
        if not disabled:
            yield Check("APIs", CheckStatus.OK, "all are enabled")
        for name in sorted(disabled):
            verdict = CheckStatus.BROKEN if name in NEEDED else CheckStatus.MISSING
            detail = USEFUL.get(name, "not enabled")
            blocks = ALL_LAUNCHES if name in NEEDED else ""
            hint = f"`gcloud services enable {name}`"
            yield Check(f"API {name}", verdict, detail, hint, blocks)

    def _permissions(self) -> Iterator[Check]:
        """Those on the nodes' account and on the bucket are tested there."""
        return _allowed("permissions", lambda: self._allowed.missing_on_project(PROJECT))

    def _region(self, region: str, now: datetime, name: str) -> Check:
        zones = self._regions.facts(region, now).zones
        return Check(name, CheckStatus.OK, f"zones {', '.join(zones)}")

    def _quota(self, region: str, now: datetime, name: str) -> Check:
        quotas = self._quotas.of(region, now)
        spot = [q for q in quotas if q.capacity_type is not CapacityType.ON_DEMAND and q.max_gpus]
        if not spot:
            return Check(
                name,
                CheckStatus.BROKEN,
                "no GPU of any model may run on spot",
                "ask for more: https://console.cloud.google.com/iam-admin/quotas; those of H100 "
                "and newer may stand there alone",
            )
        said = ", ".join(" ".join((str(q.gpu_model), *q.families, str(q.max_gpus))) for q in spot)
        return Check(name, CheckStatus.OK, f"spot GPUs: {said}")

    def _image(self, now: datetime, name: str) -> Check:
        return Check(name, CheckStatus.OK, self._images.image(now).path)

    def _account(self) -> Iterator[Check]:
        emails = self._options.accounts
        if not emails:
            yield Check(
                "node account",
                CheckStatus.MISSING,
                "no service account is named for nodes",
                "`costopt setup gcp` creates one; one of your own is named in the option "
                "service_account",
                ALL_LAUNCHES,
            )
            return
        yield Check("node account", CheckStatus.OK, ", ".join(emails))
        for email in emails:
            yield from self._acts_as(email)

    def _acts_as(self, email: str) -> Iterator[Check]:
        return _allowed(
            f"permissions on {email}", lambda: self._allowed.missing_on_account(email, ACCOUNT)
        )

    def _store(self, store: str | None) -> Iterator[Check]:
        if store is None:
            add = "add store: gs://bucket/prefix to the account file"
            yield Check("store", CheckStatus.MISSING, "the account names none", add)
            return
        try:
            bucket = bucket_of(store)
        except ProviderError as error:
            yield Check.broken("store", error, ALL_LAUNCHES)
            return
        yield self._bucket(bucket)
        yield from _allowed(
            f"permissions on {bucket}", lambda: self._allowed.missing_on_bucket(bucket, BUCKET)
        )

    def _bucket(self, name: str) -> Check:
        try:
            bucket = describe_bucket(self._clients, name)
        except ForbiddenError as error:
            return Check("store", CheckStatus.MISSING, error.message, error.hint)
        except ProviderError as error:
            return Check.broken("store", error, ALL_LAUNCHES)
        advice = []
        if bucket.location not in self._options.regions:
            advice.append(
                f"no node is to run in {bucket.location}: what they save crosses regions, which "
                "costs"
            )
        if bucket.versioned and not bucket.ends_versions:
            advice.append("versions of replaced objects are paid for: add a lifecycle rule")
        if bucket.keeps_deleted_s:
            days = bucket.keeps_deleted_s / 86400
            advice.append(f"what is deleted is kept and paid for {days:g} days: clear soft delete")
        if not bucket.uniform:
            advice.append("objects have access rules of their own: turn uniform access on")
        detail = f"{name} in {bucket.location}, {'' if bucket.versioned else 'not '}versioned"
        return Check("store", CheckStatus.OK, detail, "; ".join(advice) or None)


def _node_conditions(store: str) -> Mapping[str, object]:
    return dict(zip(("node-condition", "node-read-condition"), node_conditions(store), strict=True))


def _allowed(name: str, missing: Callable[[], tuple[str, ...]]) -> Iterator[Check]:
    try:
        denied = missing()
    except ProviderError as error:
        yield Check(name, CheckStatus.MISSING, f"could not be tested: {error.message}", error.hint)
        return
    if not denied:
        yield Check(name, CheckStatus.OK, "all that are needed")
    for permission in denied:
        name = f"permission {permission}"
        yield Check(name, CheckStatus.BROKEN, "denied", _grant(permission), ALL_LAUNCHES)


def _grant(permission: str) -> str:
    return (
        f"{role_with(permission)} has it, as has the role that `costopt doctor gcp --iam-policy` "
        "prints"
    )


OF_OLD_VERSIONS = frozenset({"daysSinceNoncurrentTime", "numNewerVersions"})


@dataclass(frozen=True, slots=True)
class Bucket:
    """``location`` is a region, or the name of several ("us"). ``uniform``: access is granted on
    the bucket and not on each object. ``keeps_deleted_s``: for how long deleted objects are
    retained, and paid for. ``ends_versions``: a lifecycle rule deletes replaced ones wherever they
    are.
    """

    location: str
    versioned: bool
    uniform: bool
    keeps_deleted_s: int
    ends_versions: bool


def describe_bucket(clients: Clients, name: str) -> Bucket:
    """https://cloud.google.com/storage/docs/json_api/v1/buckets/get. Raises ProviderError."""
    api = WebApi(clients, "storage.googleapis.com")
    response = api.get("storage.buckets.get", f"bucket {name}", f"/storage/v1/b/{name}")
    uniform: Any = response.get("iamConfiguration", {}).get("uniformBucketLevelAccess", {})
    return Bucket(
        location=str(response.get("location", "")).lower(),
        versioned=bool(response.get("versioning", {}).get("enabled")),
        uniform=bool(uniform.get("enabled")),
        keeps_deleted_s=int(
            response.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0)
        ),
        ends_versions=any(
            _ends_versions(rule) for rule in response.get("lifecycle", {}).get("rule", [])
        ),
    )


def _ends_versions(rule: Mapping[str, Any]) -> bool:
    """https://cloud.google.com/storage/docs/lifecycle#conditions. A rule for some names, classes or
    files put in before some day is not one for all of them."""
    condition = set(rule.get("condition", {}))
    return (
        rule.get("action", {}).get("type") == "Delete"
        and bool(condition & OF_OLD_VERSIONS)
        and condition <= OF_OLD_VERSIONS | {"isLive", "age"}
    )


NEEDED = ("compute.googleapis.com", "storage.googleapis.com")
USEFUL = {
    "cloudbilling.googleapis.com": "list prices are the catalogue's, which are dated",
    "cloudresourcemanager.googleapis.com": "permissions cannot be tested",
    "iam.googleapis.com": "permissions on the nodes' account cannot be tested",
}
"""What works without them, and how."""


def disabled_apis(clients: Clients, wanted: Collection[str]) -> frozenset[str]:
    """Return those of ``wanted``, at most 20, that are disabled. Raise ProviderError.

    https://cloud.google.com/service-usage/docs/reference/rest/v1/services/batchGet
    """
    parent = f"projects/{clients.project}"
    api = WebApi(clients, "serviceusage.googleapis.com")
    response = api.get(
        "serviceusage.services.get",
        parent,
        f"/v1/{parent}/services:batchGet",
        {"names": [f"{parent}/services/{name}" for name in wanted]},
    )
    enabled = {
        str(service["name"]).rpartition("/")[2]
        for service in response.get("services", ())
        if service.get("state") == "ENABLED"
    }
    return frozenset(wanted) - enabled
