"""What EC2 says about instances in a region, on its way to the controller: a queue and its rule."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from costopt.provider.setup import ResourceState, covers
from costopt_aws.instances import parse_tags
from costopt_aws.notices import REBALANCE, STATE_CHANGE, WARNING
from costopt_aws.setup.resource import AwsAccount, AwsStep

PATTERN = {"source": ["aws.ec2"], "detail-type": [WARNING, REBALANCE, STATE_CHANGE]}
TARGET = "queue"


class QueueStep(AwsStep):
    """A queue that only the rule may fill; what is not read is gone after an hour."""

    kind = "queue"
    service = "sqs"

    def __init__(self, account: AwsAccount, name: str, region: str, rule: str) -> None:
        super().__init__(account, name, region, region)
        self._rule = rule

    @property
    def arn(self) -> str:
        """Return its ARN, whether it exists or not."""
        account = self._account
        return f"arn:{account.partition}:sqs:{self.place}:{account.account_id}:{self.name}"

    def url(self) -> str | None:
        """Return its URL, None where there is none."""
        found = self._find("get_queue_url", QueueName=self.name)
        return None if found is None else str(found["QueueUrl"])

    def state(self) -> ResourceState:
        url = self.url()
        found = url and self._find("get_queue_attributes", QueueUrl=url, AttributeNames=["All"])
        if not found:
            return ResourceState.MISSING
        tags = self._call("list_queue_tags", QueueUrl=url).get("Tags", {})
        return self._state(tags, self._is_complete(found["Attributes"]))

    def create(self) -> None:
        if self.url() is None:
            self._call(
                "create_queue",
                QueueName=self.name,
                Attributes=self._attributes(),
                tags=self._account.tags,
            )
        self._call("set_queue_attributes", QueueUrl=self.url(), Attributes=self._attributes())

    def remove(self) -> None:
        url = self.url()
        if url is not None:
            self._delete("delete_queue", QueueUrl=url)

    def _is_complete(self, found: Mapping[str, str]) -> bool:
        wanted = self._attributes()
        policy = wanted.pop("Policy")
        return covers(found, wanted) and covers(
            json.loads(found.get("Policy") or "{}"), json.loads(policy)
        )

    def _attributes(self) -> dict[str, str]:
        account, place = self._account, self.place
        rule = f"arn:{account.partition}:events:{place}:{account.account_id}:rule/{self._rule}"
        only = {
            "Sid": "OurRuleAlone",
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": self.arn,
            "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
        }
        return {
            "MessageRetentionPeriod": "3600",
            "VisibilityTimeout": "120",
            "SqsManagedSseEnabled": "true",
            "Policy": json.dumps({"Version": "2012-10-17", "Statement": [only]}),
        }


class RuleStep(AwsStep):
    """The rule of EventBridge that fills the queue."""

    kind = "event rule"
    service = "events"

    def __init__(self, account: AwsAccount, name: str, region: str, queue: QueueStep) -> None:
        super().__init__(account, name, region, region)
        self._queue = queue

    def state(self) -> ResourceState:
        found = self._find("describe_rule", Name=self.name)
        if found is None:
            return ResourceState.MISSING
        tags = self._call("list_tags_for_resource", ResourceARN=found["Arn"]).get("Tags", ())
        is_complete = (
            json.loads(found.get("EventPattern") or "{}") == PATTERN
            and found.get("State") == "ENABLED"
            and [each["Arn"] for each in self._targets()] == [self._queue.arn]
        )
        return self._state(parse_tags(tags), is_complete)

    def create(self) -> None:
        tags = {}
        if self._find("describe_rule", Name=self.name) is None:
            tags = {"Tags": self._account.tag_list()}
        self._call(
            "put_rule",
            Name=self.name,
            EventPattern=json.dumps(PATTERN),
            State="ENABLED",
            Description="costopt: interruptions and ends of EC2 instances",
            **tags,
        )
        target = {"Id": TARGET, "Arn": self._queue.arn}
        self._call("put_targets", Rule=self.name, Targets=[target])

    def remove(self) -> None:
        if self._targets():
            self._delete("remove_targets", Rule=self.name, Ids=[TARGET])
        self._delete("delete_rule", Name=self.name)

    def _targets(self) -> list[Mapping[str, Any]]:
        found = self._find("list_targets_by_rule", Rule=self.name)
        return [] if found is None else found["Targets"]
