"""Spot interruption notices of AWS from the instance metadata service, version 2.

A session token (PUT /latest/api/token) authorizes the requests. ``spot/instance-action`` answers
404 until the interruption is announced, at best two minutes ahead, then {"action": …, "time": …};
``events/recommendations/rebalance`` answers 404 until EC2 considers the node at elevated risk, then
{"noticeTime": …}. (Amazon EC2 User Guide, "Spot Instance interruption notices" and "EC2 instance
rebalance recommendations".)
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from costopt.agent.notices.base import (
    MetadataError,
    MetadataResponse,
    Notice,
    PollingNoticeSource,
    get_metadata,
)

ENDPOINT_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
ENDPOINT = "http://169.254.169.254"
TOKEN_PATH = "/latest/api/token"  # noqa: S105
ACTION_PATH = "/latest/meta-data/spot/instance-action"
REBALANCE_PATH = "/latest/meta-data/events/recommendations/rebalance"
TOKEN_S = 21_600
TOKEN_SPARE_S = 300
NOTICE_S = 120.0
TIMEOUT_S = 1.0


class AwsNoticeSource(PollingNoticeSource):
    """Polls every ``poll_s`` seconds: AWS recommends 5 s."""

    def __init__(self, poll_s: float = 1.0, endpoint: str | None = None) -> None:
        super().__init__(poll_s)
        self._endpoint = (endpoint or os.environ.get(ENDPOINT_VARIABLE) or ENDPOINT).rstrip("/")
        self._token = ""
        self._token_until = 0.0
        self._token_lock = threading.Lock()

    def queries(self) -> dict[str, Callable[[], None]]:
        """Return the queries for the interruption and the recommendation."""
        return {"interruption": self._ask_action, "rebalance": self._ask_rebalance}

    def _ask_action(self) -> None:
        document = self._get(ACTION_PATH)
        if document is not None:
            self._announce(_notice(document))

    def _ask_rebalance(self) -> None:
        document = self._get(REBALANCE_PATH)
        since = "" if document is None else _field(document, "noticeTime")
        self._warn(
            "rebalance", "" if document is None else f"rebalance recommended {since}".strip()
        )

    def _get(self, path: str) -> str | None:
        """Return the text, or None on 404. Raise MetadataError; a refused token is renewed once."""
        response = self._ask(path)
        # IMDSv2 answers so where the token has expired.
        if response.status == 401:
            self._token_until = 0.0
            response = self._ask(path)
        # The paths of spot instances exist once there is something to announce.
        if response.status == 404:
            return None
        if response.status != 200:
            raise MetadataError(f"{self._endpoint}{path} answered {response.status}")
        return response.text

    def _ask(self, path: str) -> MetadataResponse:
        headers = {"X-aws-ec2-metadata-token": self._session_token()}
        return get_metadata(self._endpoint, path, headers, timeout_s=TIMEOUT_S)

    def _session_token(self) -> str:
        with self._token_lock:
            if time.monotonic() >= self._token_until:
                response = get_metadata(
                    self._endpoint,
                    TOKEN_PATH,
                    {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)},
                    method="PUT",
                    timeout_s=TIMEOUT_S,
                )
                if response.status != 200:
                    raise MetadataError(f"{self._endpoint}{TOKEN_PATH} answered {response.status}")
                self._token = response.text
                self._token_until = time.monotonic() + TOKEN_S - TOKEN_SPARE_S
            return self._token


def _notice(document: str) -> Notice:
    """An answer that cannot be parsed still counts as a notice, with the usual notice period."""
    at = _field(document, "time")
    try:
        deadline_at = datetime.fromisoformat(at).astimezone(UTC).timestamp()
    except ValueError:
        deadline_at = time.time() + NOTICE_S
    return Notice(_field(document, "action") or "terminate", at or None, deadline_at)


def _field(document: str, name: str) -> str:
    try:
        return str(json.loads(document).get(name) or "")
    except (ValueError, AttributeError):
        return ""
