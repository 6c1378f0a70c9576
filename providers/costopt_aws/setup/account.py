"""All that the controller and its nodes need in an AWS account, by their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from costopt.provider.setup import AccountSetup, NamePrefix, SetupStep
from costopt_aws.bootstrap import bucket_of
from costopt_aws.clients import Clients
from costopt_aws.doctor import Doctor
from costopt_aws.errors import map_errors
from costopt_aws.iam import NODE_TRUST
from costopt_aws.options import AwsOptions
from costopt_aws.setup.bucket import BucketStep
from costopt_aws.setup.interruption_queue import QueueStep, RuleStep
from costopt_aws.setup.network import SecurityGroupStep
from costopt_aws.setup.resource import AwsAccount
from costopt_aws.setup.roles import InstanceProfileStep, RoleStep


class AwsSetup(AccountSetup):
    """What the options name keeps its name, and the rest is named after the owner.

    Raise ForbiddenError where there are no credentials, BadRequestError for a store elsewhere.
    """

    def __init__(
        self, clients: Clients, options: AwsOptions, owner: str, store: str | None
    ) -> None:
        self._clients = clients
        self._options = options
        self._home = options.regions[0]
        with map_errors("sts:GetCallerIdentity", "credentials"):
            found = clients.reading("sts", self._home).get_caller_identity()
            account_id, partition = str(found["Account"]), str(found["Arn"]).split(":")[1]
        self._account = AwsAccount(clients, account_id, partition, owner)
        self._prefix = str(NamePrefix(owner))
        self._has_store = store is not None
        self._store = store or f"s3://{self._prefix}-{account_id}-{self._home}/costopt"
        self._has_profile = "instance_profile" in options.model_fields_set
        profile = options.instance_profile if self._has_profile else f"{self._prefix}-node"
        self._node = self._role(profile, "Training nodes: their store and nothing else", "node")
        self._node.is_named = self._has_profile

    @property
    def store(self) -> str:
        return self._store

    @cached_property
    def steps(self) -> Sequence[SetupStep]:
        bucket = BucketStep(self._account, bucket_of(self._store), self._home, self._node)
        bucket.is_named = self._has_store
        profile = InstanceProfileStep(self._account, self._node.name, self._home)
        profile.is_named = self._has_profile
        about = "The costopt controller: starts and ends what carries its owner tag"
        daemon = self._role(f"{self._prefix}-daemon", about, "daemon")
        return (
            self._node,
            profile,
            bucket,
            *self._groups.values(),
            *self._notices(),
            daemon,
            InstanceProfileStep(self._account, daemon.name, self._home),
        )

    def options(self) -> Mapping[str, object]:
        groups = {region: step.group_id() for region, step in self._groups.items()}
        urls = {region: step.url() for region, step in self._queues.items()}
        return {
            "regions": list(self._options.regions),
            "instance_profile": self._node.name,
            "security_groups": {
                **{region: list(ids) for region, ids in self._options.security_groups.items()},
                **{region: [group_id] for region, group_id in groups.items() if group_id},
            },
            "queues": {
                **self._options.queues,
                **{region: url for region, url in urls.items() if url},
            },
        }

    @cached_property
    def _groups(self) -> Mapping[str, SecurityGroupStep]:
        """By region; none where the options name another group."""
        steps = {}
        for region in self._options.regions:
            step = SecurityGroupStep(self._account, f"{self._prefix}-nodes", region)
            named = self._options.security_groups.get(region)
            if named is None or step.group_id() in (None, *named):
                steps[region] = step
        return steps

    @cached_property
    def _queues(self) -> Mapping[str, QueueStep]:
        """By region; none where the options name another queue."""
        name, rule = f"{self._prefix}-events", f"{self._prefix}-instances"
        return {
            region: QueueStep(self._account, name, region, rule)
            for region in self._options.regions
            if self._options.queues.get(region, name).rpartition("/")[2] == name
        }

    def _notices(self) -> Iterator[SetupStep]:
        for region, queue in self._queues.items():
            yield queue
            yield RuleStep(self._account, f"{self._prefix}-instances", region, queue)

    def _role(self, name: str, about: str, role: str) -> RoleStep:
        trust = NODE_TRUST if role == "node" else _daemon_trust(self._account)
        return RoleStep(self._account, name, self._home, about, trust, lambda: self._policy(role))

    def _policy(self, role: str) -> Mapping[str, object]:
        """Return the policy that ``costopt doctor aws --iam-policy`` prints for the role."""
        account = self._account
        # A policy names a queue by its ARN, which follows from any URL of it.
        queues = {
            region: f"https://sqs.{region}.amazonaws.com/{account.account_id}/{step.name}"
            for region, step in self._queues.items()
        }
        found = self.options()
        options = self._options.model_copy(
            update={
                "instance_profile": self._node.name,
                "security_groups": found["security_groups"],
                "queues": {**self._options.queues, **queues},
            }
        )
        policy = Doctor(self._clients, options).policies(account.owner, self._store)[role]
        assert isinstance(policy, Mapping)
        return policy


def _daemon_trust(account: AwsAccount) -> Mapping[str, object]:
    """A machine with the role's profile, and whom the account allows to assume the role."""
    statements = NODE_TRUST["Statement"]
    assert isinstance(statements, list)
    root = f"arn:{account.partition}:iam::{account.account_id}:root"
    people = {"Effect": "Allow", "Principal": {"AWS": root}, "Action": "sts:AssumeRole"}
    return {**NODE_TRUST, "Statement": [*statements, people]}
