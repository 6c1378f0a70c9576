"""Requests that a node authorizes with its own role: AWS's, or Google Cloud's service account.

The credentials come from the metadata service; they are neither stored nor printed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from costopt.agent.notices import aws, gcp
from costopt.agent.notices.base import MetadataError, get_metadata

T = TypeVar("T")
TIMEOUT_S = 20.0
ATTEMPTS = 4
RETRY_DELAY_S = 1.0
MAX_RESPONSE_BYTES = 1 << 20
TRANSIENT = frozenset({429, 500, 502, 503, 504})


class RoleError(Exception):
    """A service refused or did not answer; the message says which, and why.

    ``code`` is the service's name of the error, "" if it did not answer.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


def call_aws(service: str, region: str, target: str, body: Mapping[str, object]) -> dict[str, Any]:
    """Return the answer of an AWS service that speaks JSON 1.1. Raise RoleError.

    The request is signed with the instance's role (docs.aws.amazon.com/IAM/latest/UserGuide/
    reference_sigv-create-signed-request.html). AWS_ENDPOINT_URL replaces AWS's own address.
    """
    # China's regions are a partition with a domain of its own.
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    prefix = "api.ecr" if service == "ecr" else service
    endpoint = os.environ.get("AWS_ENDPOINT_URL") or f"https://{prefix}.{region}.{domain}"
    data = json.dumps(body).encode()

    def request() -> urllib.request.Request:
        keys = _instance_keys()
        at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers = {
            "content-type": "application/x-amz-json-1.1",
            "host": urlsplit(endpoint).netloc,
            "x-amz-date": at,
            "x-amz-security-token": keys["Token"],
            "x-amz-target": target,
        }
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        digest = hashlib.sha256(data).hexdigest()
        canonical = "\n".join(["POST", "/", "", lines, names, digest])
        scope = f"{at[:8]}/{region}/{service}/aws4_request"
        hashed = hashlib.sha256(canonical.encode()).hexdigest()
        key = f"AWS4{keys['SecretAccessKey']}".encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        text = "\n".join(["AWS4-HMAC-SHA256", at, scope, hashed]).encode()
        signature = hmac.new(key, text, hashlib.sha256).hexdigest()
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={keys['AccessKeyId']}/{scope},"
            f"SignedHeaders={names},Signature={signature}"
        )
        return urllib.request.Request(endpoint, data, headers, method="POST")  # noqa: S310

    return _send(target, request)


def call_google(service: str, path: str) -> dict[str, Any]:
    """Return the answer of a Google API to GET, as the VM's service account. Raise RoleError.

    CLOUDSDK_API_ENDPOINT_OVERRIDES_SERVICE replaces its address, as for gcloud.
    """
    variable = f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{service.upper()}"
    endpoint = os.environ.get(variable) or f"https://{service}.googleapis.com/"

    def request() -> urllib.request.Request:
        headers = {"Authorization": f"Bearer {google_token()}"}
        return urllib.request.Request(endpoint.rstrip("/") + path, headers=headers)  # noqa: S310

    return _send(path, request)


def google_token() -> str:
    """Return an access token of the VM's service account. Raise RoleError."""
    return str(
        json.loads(_google_metadata("instance/service-accounts/default/token"))["access_token"]
    )


def google_project() -> str:
    """Return the id of the VM's project. Raise RoleError."""
    return _google_metadata("project/project-id")


def _google_metadata(path: str) -> str:
    host = os.environ.get(gcp.HOST_VARIABLE) or gcp.HOST
    root = gcp.ROOT.removesuffix("instance/")
    return _metadata(lambda: get_metadata(host, root + path, gcp.HEADERS, timeout_s=TIMEOUT_S))


def _instance_keys() -> dict[str, str]:
    """Return the temporary credentials of the instance's role (IMDSv2). Raise RoleError."""
    endpoint = (os.environ.get(aws.ENDPOINT_VARIABLE) or aws.ENDPOINT).rstrip("/")
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "300"}

    def ask(path: str, headers: Mapping[str, str], method: str = "GET") -> str:
        return _metadata(
            lambda: get_metadata(endpoint, path, headers, method=method, timeout_s=TIMEOUT_S)
        )

    token = {"X-aws-ec2-metadata-token": ask(aws.TOKEN_PATH, ttl, "PUT")}
    roles = "/latest/meta-data/iam/security-credentials/"
    role = ask(roles, token).split()[0]
    keys: dict[str, str] = json.loads(ask(roles + role, token))
    return keys


def _metadata(ask: Callable[[], Any]) -> str:
    try:
        response = ask()
    except MetadataError as error:
        raise RoleError(str(error)) from None
    if response.status != 200:
        raise RoleError(f"the metadata service answered {response.status}: has the node a role?")
    return str(response.text).strip()


def _send(what: str, request: Callable[[], urllib.request.Request]) -> dict[str, Any]:
    """Ask again where the network or the role's rights are not there yet."""
    for attempt in range(ATTEMPTS):
        try:
            with urllib.request.urlopen(request(), timeout=TIMEOUT_S) as response:  # noqa: S310
                found: dict[str, Any] = json.loads(response.read(MAX_RESPONSE_BYTES))
                return found
        except urllib.error.HTTPError as error:
            refused = _refusal(what, error)
            if error.code not in TRANSIENT or attempt + 1 == ATTEMPTS:
                raise refused from None
        except (OSError, ValueError) as error:
            if attempt + 1 == ATTEMPTS:
                raise RoleError(f"{what}: no usable answer: {error}") from None
        time.sleep(RETRY_DELAY_S * 2**attempt)
    raise AssertionError


def _refusal(what: str, error: urllib.error.HTTPError) -> RoleError:
    """Return what AWS ({"__type", "message"}) or Google ({"error": {"status", …}}) says."""
    try:
        said = json.loads(error.read(MAX_RESPONSE_BYTES))
        said = said.get("error", said)
        code = str(said.get("__type") or said.get("status") or error.code).rpartition("#")[2]
        text = str(said.get("message") or said.get("Message") or error.reason)
    except (OSError, ValueError, AttributeError):
        code, text = str(error.code), str(error.reason)
    return RoleError(f"{what} was refused: {code}: {text[:300]}", code)
