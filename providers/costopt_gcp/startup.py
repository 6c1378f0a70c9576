"""What a node runs when it boots: one small script that holds no secrets."""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, urlsplit

from costopt.domain.errors import BadRequestError
from costopt.domain.payload import Payload
from costopt.provider.boot_script import render_boot_script
from costopt_gcp.node_start import GcePlatform

ROOT = "/opt/costopt"
STORAGE = "https://storage.googleapis.com"
PYTHONS = (
    "/opt/conda/bin/python3",
    "/opt/python/bin/python3",
    "/usr/bin/python3.13",
    "/usr/bin/python3.12",
    "/usr/bin/python3.11",
    "/usr/bin/python3",
)
"""Where Deep Learning VM images keep the Python that has PyTorch, then a plain image's."""


def startup_script(
    payload: Payload, *, notice_s: int, root: str = ROOT, pythons: tuple[str, ...] = PYTHONS
) -> str:
    """The script for the nodes of the payload's job: the same text for the same payload.

    Raises BadRequestError where the store is not one that a node's account can open.
    """
    return render_boot_script(
        payload,
        GcePlatform,
        _store(payload.store),
        root=root,
        pythons=pythons,
        more={"notice_s": notice_s},
    )


def bucket_of(uri: str) -> str:
    """The bucket of a store. Raises BadRequestError where the URI is not of Cloud Storage."""
    parts = urlsplit(uri)
    if parts.scheme != "gs" or not parts.netloc:
        raise BadRequestError(
            f"Compute Engine nodes cannot be reached through the store {uri!r}",
            hint="give the account file a store: of the kind gs://bucket/prefix",
        )
    return parts.netloc


def _store(uri: str) -> dict[str, str]:
    parts = urlsplit(uri)
    given = dict(parse_qsl(parts.query)).get("endpoint")
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    if emulator and "://" not in emulator:
        emulator = f"http://{emulator}"
    return {
        "uri": uri,
        "bucket": bucket_of(uri),
        "prefix": parts.path.strip("/"),
        "endpoint": (given or emulator or STORAGE).rstrip("/"),
    }
