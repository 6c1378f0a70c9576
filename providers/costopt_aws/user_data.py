"""What a node runs on its first boot: one small script that holds no secrets."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit

from costopt.domain.errors import BadRequestError
from costopt.domain.payload import Payload
from costopt.provider.boot_script import render_boot_script
from costopt_aws.node_start import Ec2Platform

ROOT = "/opt/costopt"
PYTHONS = (
    "/opt/pytorch/bin/python3",
    "/opt/conda/envs/pytorch/bin/python3",
    "/usr/bin/python3.13",
    "/usr/bin/python3.12",
    "/usr/bin/python3.11",
    "/usr/bin/python3",
)
"""Where the Deep Learning AMIs keep the Python that has PyTorch (their release notes: a virtual
environment since PyTorch 2.5, a conda environment before), then a plain image's."""


def user_data(
    payload: Payload,
    *,
    region: str,
    endpoint: str,
    root: str = ROOT,
    pythons: tuple[str, ...] = PYTHONS,
) -> str:
    """The script for the nodes of the payload's job: the same text for the same payload.

    ``region`` and ``endpoint`` are those of the store's bucket. Raises BadRequestError where the
    store is not one that a node's role can open.
    """
    store = _store(payload.store, region, endpoint)
    return render_boot_script(payload, Ec2Platform, store, root=root, pythons=pythons)


def bucket_of(uri: str) -> str:
    """The bucket of a store. Raises BadRequestError where the URI is not of S3."""
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise BadRequestError(
            f"EC2 nodes cannot be reached through the store {uri!r}",
            hint="give the account file a store: of the kind s3://bucket/prefix",
        )
    return parts.netloc


def _store(uri: str, region: str, endpoint: str) -> Mapping[str, str]:
    bucket, parts = bucket_of(uri), urlsplit(uri)
    options = {**dict(parse_qsl(parts.query)), "region": region}
    return {
        "uri": parts._replace(query=urlencode(options)).geturl(),
        "bucket": bucket,
        "prefix": parts.path.strip("/"),
        "region": region,
        "endpoint": options.get("endpoint", endpoint).rstrip("/"),
    }
