"""The instance metadata service (IMDSv2) of every instance, under /imds/<instance id>.

A node reaches its own through AWS_EC2_METADATA_SERVICE_ENDPOINT.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from tests.support.aws.overlay.call import Answer, Call, Forward, Reply

ROOT = "/imds"
ROLE = "costopt-node"


class Metadata:
    """Answers as an instance's metadata service does: token first, then paths."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        """Instances whose service does not answer."""
        self._tokens: set[str] = set()
        self._paths: dict[str, dict[str, str]] = {}

    def answers(self) -> Mapping[tuple[str, str], Answer]:
        """Everything below /imds."""
        return {("", ROOT): self.page}

    def reset(self) -> None:
        """No instance has anything to say."""
        self.down.clear()
        self._tokens.clear()
        self._paths.clear()

    def set(self, instance_id: str, path: str, text: str) -> None:
        """What the instance reads at ``path``, such as "spot/instance-action"."""
        self._paths.setdefault(instance_id, {})[path] = text

    def notice(self, instance_id: str, interrupts_at: datetime, action: str = "terminate") -> None:
        """The spot interruption notice, as the instance reads it."""
        content = {"action": action, "time": f"{interrupts_at:%Y-%m-%dT%H:%M:%SZ}"}
        self.set(instance_id, "spot/instance-action", json.dumps(content))

    def rebalance(self, instance_id: str, noticed_at: datetime) -> None:
        """The rebalance recommendation, as the instance reads it."""
        content = {"noticeTime": f"{noticed_at:%Y-%m-%dT%H:%M:%SZ}"}
        self.set(instance_id, "events/recommendations/rebalance", json.dumps(content))

    def page(self, call: Call, forward: Forward) -> Reply:
        """One request of a node to its own service."""
        instance_id, _, path = call.path.removeprefix(f"{ROOT}/").partition("/")
        if instance_id in self.down:
            return Reply(503, b"")
        if path == "latest/api/token":
            return self._token(call)
        if call.environ.get("HTTP_X_AWS_EC2_METADATA_TOKEN") not in self._tokens:
            return Reply(401, b"")
        text = self._read(instance_id, path.removeprefix("latest/").removeprefix("meta-data/"))
        return Reply(404, b"") if text is None else Reply(200, text.encode())

    def _token(self, call: Call) -> Reply:
        if call.method != "PUT" or "HTTP_X_AWS_EC2_METADATA_TOKEN_TTL_SECONDS" not in call.environ:
            return Reply(400, b"")
        token = secrets.token_urlsafe(16)
        self._tokens.add(token)
        ttl_s = call.environ["HTTP_X_AWS_EC2_METADATA_TOKEN_TTL_SECONDS"]
        headers = {"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": str(ttl_s)}
        return Reply(200, token.encode(), headers)

    def _read(self, instance_id: str, path: str) -> str | None:
        reported = self._paths.get(instance_id, {})
        if path in reported:
            return reported[path]
        match path:
            case "instance-id":
                return instance_id
            case "iam/security-credentials/" | "iam/security-credentials":
                return ROLE
            case _ if path == f"iam/security-credentials/{ROLE}":
                return _credentials()
        return None


def _credentials() -> str:
    now = datetime.now(UTC)
    return json.dumps(
        {
            "Code": "Success",
            "LastUpdated": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "Type": "AWS-HMAC",
            "AccessKeyId": "ASIATESTNODE",
            "SecretAccessKey": "secret-of-the-node",
            "Token": "session-of-the-node",
            "Expiration": f"{now + timedelta(hours=6):%Y-%m-%dT%H:%M:%SZ}",
        }
    )
