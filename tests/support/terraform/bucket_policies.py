"""The policies of buckets, kept beside moto, which would apply them without their conditions."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.aws.overlay.call import Answer, Call, Forward, Reply
from tests.support.aws.overlay.refusal import refusal


class BucketPolicies:
    """Requests for ``?policy``; all else is handed on."""

    def __init__(self) -> None:
        self._policies: dict[str, bytes] = {}

    def answers(self) -> Mapping[tuple[str, str], Answer]:
        """PutBucketPolicy, GetBucketPolicy and DeleteBucketPolicy."""
        return {("s3", "PUT"): self.put, ("s3", "GET"): self.get, ("s3", "DELETE"): self.delete}

    def reset(self) -> None:
        """No policies."""
        self._policies.clear()

    def put(self, call: Call, forward: Forward) -> Reply:
        """Keep it."""
        if not _asks_for_policy(call):
            return forward(call)
        self._policies[call.path.rstrip("/")] = call.body
        return Reply(204)

    def get(self, call: Call, forward: Forward) -> Reply:
        """As it was put."""
        if not _asks_for_policy(call):
            return forward(call)
        policy = self._policies.get(call.path.rstrip("/"))
        if policy is None:
            return refusal(call, "NoSuchBucketPolicy", "The bucket policy does not exist", 404)
        return Reply(200, policy)

    def delete(self, call: Call, forward: Forward) -> Reply:
        """Forget it."""
        if not _asks_for_policy(call):
            return forward(call)
        self._policies.pop(call.path.rstrip("/"), None)
        return Reply(204)


def _asks_for_policy(call: Call) -> bool:
    query = str(call.environ.get("QUERY_STRING", ""))
    return "policy" in (part.partition("=")[0] for part in query.split("&"))
