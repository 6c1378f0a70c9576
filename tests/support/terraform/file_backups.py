"""Whether file systems are backed up, which moto does not know."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.aws.overlay.call import Answer, Call, Forward, Reply

SERVICE = "elasticfilesystem"


class FileBackups:
    """The paths of file systems' backup policies; all else is handed on."""

    def __init__(self) -> None:
        self._policies: dict[str, bytes] = {}

    def answers(self) -> Mapping[tuple[str, str], Answer]:
        """PutBackupPolicy and DescribeBackupPolicy."""
        return {(SERVICE, "PUT"): self.put, (SERVICE, "GET"): self.get}

    def reset(self) -> None:
        """No policies."""
        self._policies.clear()

    def put(self, call: Call, forward: Forward) -> Reply:
        """Keep it."""
        if not call.path.endswith("/backup-policy"):
            return forward(call)
        self._policies[call.path] = call.body
        return Reply(200, call.body, {"Content-Type": "application/json"})

    def get(self, call: Call, forward: Forward) -> Reply:
        """As it was put."""
        policy = self._policies.get(call.path)
        return forward(call) if policy is None else Reply(200, policy)
