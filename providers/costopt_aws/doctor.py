"""Checks whether an AWS account can run jobs, before anything is launched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from urllib.parse import urlsplit

from costopt.domain.errors import BadRequestError, ForbiddenError, ProviderError
from costopt.domain.market import CapacityType
from costopt.provider.base import ALL_LAUNCHES, Check, CheckStatus
from costopt_aws.bootstrap import bucket_of, bucket_region, expires_old_versions
from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors
from costopt_aws.iam import (
    DISPENSABLE,
    NODE_TRUST,
    Permissions,
    actions,
    daemon_policy,
    job_policy,
    node_policy,
)
from costopt_aws.images import ImageResolver
from costopt_aws.launch_scope import LaunchScope, subnets_in
from costopt_aws.options import AwsOptions
from costopt_aws.quotas import AccountQuotas
from costopt_aws.regions import Regions

GPU_FAMILIES = frozenset({"g", "p"})
MAX_NAMES_SHOWN = 6


class Doctor:
    """Runs the checks in order, from what everything needs to what only nodes need."""

    def __init__(self, clients: Clients, options: AwsOptions) -> None:
        self._clients = clients
        self._options = options
        self._images = ImageResolver(clients, options.image)
        self._quotas = AccountQuotas(clients)

    def policies(self, owner: str, store: str | None) -> Mapping[str, object]:
        """By role: the controller's policy, the nodes' with those of jobs that have their own, and
        whom the nodes' roles trust."""
        said = self._options
        return {
            "daemon": self._daemon_policy(owner, store),
            "node": node_policy(store, said.job_profiles, said.secrets, said.repositories),
            "node-trust": NODE_TRUST,
            **{
                f"job-{job}": job_policy(
                    store, job, said.job_secrets.get(job, ()), said.repositories
                )
                for job in said.job_profiles
            },
        }

    def checks(self, owner: str, store: str | None, now: datetime) -> Iterator[Check]:
        """Yield the findings; without credentials nothing else is checked."""
        arn, found = self._credentials()
        yield found
        if arn is None:
            return
        usable: list[str] = []
        for region in self._options.regions:
            of_region = partial(self._region, region, now)
            check = Check.of(f"region {region}", of_region, blocks=region)
            yield check
            if check.verdict is CheckStatus.OK:
                usable.append(region)
        yield from self._permissions(arn, usable, owner, store, now)
        for region in usable:
            of_quota = partial(self._quota, region, now)
            yield Check.of(f"quota {region}", of_quota, is_optional=True)
            of_image = partial(self._image, region, now)
            yield Check.of(f"image {region}", of_image, blocks=region)
        for profile in sorted(self._options.profiles):
            of_role = partial(self._role, profile)
            yield Check.of(f"node role {profile}", of_role, is_optional=True)
        for region, url in self._options.queues.items():
            of_queue = partial(self._queue, region, url)
            yield Check.of(f"queue {region}", of_queue, is_optional=True)
        of_store = partial(self._store, store)
        yield Check.of("store", of_store, is_optional=True, blocks=ALL_LAUNCHES)

    def _credentials(self) -> tuple[str | None, Check]:
        region = self._options.regions[0]
        try:
            with map_errors("sts:GetCallerIdentity", "credentials"):
                arn = self._clients.reading("sts", region).get_caller_identity()["Arn"]
        except ProviderError as error:
            return None, Check.broken("credentials", error, ALL_LAUNCHES)
        return arn, Check("credentials", CheckStatus.OK, arn)

    def _region(self, region: str, now: datetime, name: str) -> Check:
        Regions(self._clients).check(region, now, self._options.regions)
        with map_errors("ec2:DescribeAvailabilityZones", region):
            response = self._clients.reading("ec2", region).describe_availability_zones()
            zones = len(response["AvailabilityZones"])
        return Check(name, CheckStatus.OK, f"enabled, {zones} zones")

    def _permissions(
        self, arn: str, regions: list[str], owner: str, store: str | None, now: datetime
    ) -> Iterator[Check]:
        permissions = Permissions(self._clients)
        needed = self._daemon_policy(owner, _of_s3(store))
        try:
            denied = permissions.simulated(arn, needed, self._options.regions[0])
        except ProviderError:
            yield from self._dry_runs(permissions, regions, owner, now)
            return
        if not denied:
            count = len(actions(needed))
            yield Check("permissions", CheckStatus.OK, f"all {count} actions are allowed")
        yield from (_denied(action, resources) for action, resources in denied.items())

    def _daemon_policy(self, owner: str, store: str | None) -> Mapping[str, object]:
        return daemon_policy(owner, store, LaunchScope.from_options(self._options))

    def _dry_runs(
        self, permissions: Permissions, regions: list[str], owner: str, now: datetime
    ) -> Iterator[Check]:
        refused = False
        for region in regions:
            try:
                image_id = self._images.image(region, now).image_id
            except ProviderError:
                continue
            for error in permissions.dry_runs(region, image_id, owner, self._network(region)):
                refused = True
                yield Check.broken(f"permission in {region}", error, region)
        if not refused:
            yield Check(
                "permissions",
                CheckStatus.MISSING,
                "a launch may be asked for; other actions could not be simulated",
                _allow("iam:SimulatePrincipalPolicy"),
            )

    def _network(self, region: str) -> Mapping[str, object]:
        """Return the network arguments of a launch there, as far as the options name them."""
        subnets = subnets_in(region, self._options.subnets)
        groups = self._options.security_groups.get(region, ())
        return {
            **({"SubnetId": subnets[0]} if subnets else {}),
            **({"SecurityGroupIds": list(groups)} if groups else {}),
        }

    def _quota(self, region: str, now: datetime, name: str) -> Check:
        quotas = self._quotas.of(region, now)
        gpus = [q for q in quotas if {f.lower()[:1] for f in q.families} & GPU_FAMILIES]
        none = [q.name for q in gpus if not q.max_vcpus]
        spot = [q for q in gpus if q.capacity_type is CapacityType.SPOT and q.max_vcpus]
        if not spot:
            return Check(
                name,
                CheckStatus.BROKEN,
                "no vCPU of any GPU family may run on spot",
                f"ask for more: https://{region}.console.aws.amazon.com/servicequotas",
            )
        said = ", ".join(f"{'/'.join(q.families)} {q.max_vcpus} vCPU" for q in spot)
        hint = None if not none else f"none: {', '.join(none[:MAX_NAMES_SHOWN])}"
        return Check(name, CheckStatus.OK, f"spot: {said}", hint)

    def _image(self, region: str, now: datetime, name: str) -> Check:
        return Check(name, CheckStatus.OK, self._images.image(region, now).image_id)

    def _role(self, profile: str, name: str) -> Check:
        try:
            with map_errors("iam:GetInstanceProfile", f"instance profile {profile}"):
                client = self._clients.reading("iam", self._options.regions[0])
                client.get_instance_profile(InstanceProfileName=profile)
        except BadRequestError as error:
            # A job may have a role of its own.
            blocks = "" if self._options.job_profiles else ALL_LAUNCHES
            hint = "`costopt setup aws` creates it"
            return Check(name, CheckStatus.BROKEN, error.message, hint, blocks)
        return Check(name, CheckStatus.OK, "its instance profile is there")

    def _queue(self, region: str, url: str, name: str) -> Check:
        with map_errors("sqs:GetQueueAttributes", url):
            self._clients.reading("sqs", region).get_queue_attributes(QueueUrl=url)
        return Check(name, CheckStatus.OK, url)

    def _store(self, store: str | None, name: str) -> Check:
        if store is None:
            add = "add store: s3://bucket/prefix to the account file"
            return Check(name, CheckStatus.MISSING, "the account names none", add)
        bucket = bucket_of(store)
        try:
            region = bucket_region(self._clients, bucket)
        except ForbiddenError as error:
            return Check.broken(name, error)
        with map_errors("s3:GetBucketVersioning", f"bucket {bucket}"):
            s3 = self._clients.reading("s3", region)
            versioned = s3.get_bucket_versioning(Bucket=bucket).get("Status") == "Enabled"
        hint: str | None = None
        if region not in self._options.regions:
            hint = f"no node is to run in {region}: what they save crosses regions, which costs"
        elif versioned:
            hint = self._versions_hint(region, store)
        detail = f"{bucket} in {region}, {'versioned' if versioned else 'not versioned'}"
        return Check(name, CheckStatus.OK, detail, hint)

    def _versions_hint(self, region: str, store: str) -> str | None:
        prefix = urlsplit(store).path.strip("/") + "/"
        try:
            if expires_old_versions(self._clients, region, bucket_of(store), prefix):
                return None
        except ProviderError as error:
            return f"see that a lifecycle rule ends replaced versions: {error.message}"
        return "versions of replaced objects are kept, and paid for: add a lifecycle rule"


def _denied(action: str, resources: Sequence[str]) -> Check:
    name = f"permission {action}"
    if action in DISPENSABLE:
        return Check(name, CheckStatus.MISSING, f"denied: {DISPENSABLE[action]}", _allow(action))
    where = [each for each in resources if each != "*"]
    detail = f"denied on {', '.join(where[:MAX_NAMES_SHOWN])}" if where else "denied"
    # A bucket's own policy may allow what the simulation denies.
    blocks = "" if action.startswith("s3:") else ALL_LAUNCHES
    return Check(name, CheckStatus.BROKEN, detail, _allow(action), blocks)


def _allow(action: str) -> str:
    return f"allow {action}; `costopt doctor aws --iam-policy` prints all that is needed"


def _of_s3(store: str | None) -> str | None:
    """Return the store if policies can name it; another kind of store is a separate finding."""
    try:
        return store if store is not None and bucket_of(store) else None
    except BadRequestError:
        return None
