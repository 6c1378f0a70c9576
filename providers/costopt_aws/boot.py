"""EC2's part of what runs as user data on a node's first boot; switched off, it is terminated.

This file is sent to nodes as text, behind ``costopt.provider.boot`` and under the same rules:
the standard library alone, and Python 3.8.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from costopt.provider.boot import get_with_retry

if TYPE_CHECKING:
    from costopt.provider.boot import Config

METADATA = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254")


class Ec2Platform:
    """The Cloud of an EC2 node.

    https://docs.aws.amazon.com/dlami/latest/devguide/aws-deep-learning-multi-disk.html
    """

    fast_disk = Path("/opt/dlami/nvme")
    boot_log = "/var/log/cloud-init-output.log"
    stop_s = 110

    def __init__(self, config: Config) -> None:
        self.store = config["store"]

    def node_id(self) -> str:
        """The instance's id."""
        return metadata("instance-id")

    def object_url(self, method: str, key: str, body: bytes = b"") -> urllib.request.Request:
        """A request for an object of the job's store, signed with the node's role (SigV4).

        https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
        """
        store = self.store
        role = metadata("iam/security-credentials/").split()[0]
        keys = json.loads(metadata(f"iam/security-credentials/{role}"))
        parts = [store["bucket"], store["prefix"], key]
        path = "/" + urllib.parse.quote("/".join(part for part in parts if part))
        at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        digest = hashlib.sha256(body).hexdigest()
        headers = {
            "content-type": "application/octet-stream",
            "host": urllib.parse.urlsplit(store["endpoint"]).netloc,
            "x-amz-content-sha256": digest,
            "x-amz-date": at,
            "x-amz-security-token": keys["Token"],
        }
        names = ";".join(sorted(headers))
        listed = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        canonical = "\n".join([method, path, "", listed, names, digest])
        scope = f"{at[:8]}/{store['region']}/s3/aws4_request"
        hashed = hashlib.sha256(canonical.encode()).hexdigest()
        secret = f"AWS4{keys['SecretAccessKey']}".encode()
        for part in scope.split("/"):
            secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
        signed = "\n".join(["AWS4-HMAC-SHA256", at, scope, hashed]).encode()
        signature = hmac.new(secret, signed, hashlib.sha256).hexdigest()
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={keys['AccessKeyId']}/{scope},"
            f"SignedHeaders={names},Signature={signature}"
        )
        data = body if method == "PUT" else None
        return urllib.request.Request(store["endpoint"] + path, data, headers, method=method)

    def agent_options(self) -> list[str]:
        """Notices come from IMDS; a trainer's process runs on each GPU."""
        gpus = len(list(Path("/dev").glob("nvidia[0-9]*"))) or 1
        host = metadata("local-ipv4")
        return ["--notices", "aws", "--secrets", "aws", "--host", host, "--processes", str(gpus)]

    def variables(self) -> list[str]:
        """Where the store is."""
        return [f"AWS_REGION={self.store['region']}"]


def metadata(path: str) -> str:
    """What the instance metadata service (IMDSv2) says."""
    base = f"{METADATA.rstrip('/')}/latest"
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "300"}
    token = get_with_retry(
        lambda: urllib.request.Request(f"{base}/api/token", headers=ttl, method="PUT")
    )
    headers = {"X-aws-ec2-metadata-token": token.decode()}
    url = f"{base}/meta-data/{path}"
    return get_with_retry(lambda: urllib.request.Request(url, headers=headers)).decode()
