"""How pods start: an init container brings costopt and the job, the user's image runs both.

The init container fetches with the pod's service account and costopt's own client of the store, so
that the user's image needs neither; it also copies the compiled packages that the agent imports,
for images with the same version of Python.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from costopt.domain.errors import BadRequestError
from costopt.domain.fleet import LaunchRequest
from costopt.domain.runtime import Payload
from costopt.provider.boot_script import render_boot_script
from costopt.provider.launch import payload_of
from costopt_kubernetes.boot import PodPlatform
from costopt_kubernetes.options import KubernetesOptions
from costopt_kubernetes.quantities import MIB, Amounts, resources

ROOT = "/costopt"
PYTHONS = ("python3", "/opt/conda/bin/python3", "/usr/local/bin/python3", "/usr/bin/python3")
FETCH_SIZE: Amounts = {"cpu": 0.5, "memory": 512.0 * MIB}

FETCH = """
import hashlib, json, shutil, sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from costopt.store import open_store

asked = json.loads(sys.argv[1])
root, store = Path(asked["root"]), open_store(asked["store"])
for file in asked["files"]:
    path = root / "files" / file["sha256"][:16] / Path(file["key"]).name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not store.get_file(file["key"], path):
        sys.exit(f"the store has no {file['key']}")
    if hashlib.sha256(path.read_bytes()).hexdigest() != file["sha256"]:
        sys.exit(f"{file['key']} is not what was uploaded")
site = root / "site-{}.{}".format(*sys.version_info[:2])
for need in asked["packages"]:
    try:
        files = distribution(need).files or []
    except PackageNotFoundError:
        continue
    for file in files:
        if ".." not in file.parts and file.locate().is_file():
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), site / file)
"""


def containers(
    request: LaunchRequest, options: KubernetesOptions, wanted: Amounts
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the init container and the container of the request's pods.

    Raise BadRequestError where the job has no payload, or no image is named.
    """
    payload = payload_of(options.payloads, request)
    if options.image is None:
        raise BadRequestError(
            f"{request.pool}: no image is named for pods",
            hint="write image: under kubernetes: in the account file",
        )
    gpus = round(wanted.get(options.gpu_resource, 0.0)) or 1
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    mounts = [{"name": "costopt", "mountPath": ROOT}]
    claims = enumerate(options.claims.values())
    mounts += [{"name": f"claim-{number}", "mountPath": folder} for number, folder in claims]
    env: list[dict[str, Any]] = [
        {"name": name, "value": value} for name, value in sorted(options.env.items())
    ]
    env += [
        {"name": "HOME", "value": ROOT},
        {"name": "COSTOPT_NODE", "valueFrom": _field("metadata.name")},
        {"name": "COSTOPT_HOST", "valueFrom": _field("status.podIP")},
    ]
    shared = {"securityContext": security, "env": env}
    fetch = {
        **shared,
        "name": "costopt",
        "image": options.agent_image or options.image,
        "command": ["python3", "-c", FETCH, _asked(payload)],
        "resources": resources(FETCH_SIZE),
        "volumeMounts": mounts,
    }
    train = {
        **shared,
        "name": "train",
        "image": options.image,
        "command": ["python3", "-u", "-c", _script(payload, options, gpus)],
        "resources": resources(wanted),
        "volumeMounts": [*mounts, {"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return fetch, train


def _field(path: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": path}}


def _asked(payload: Payload) -> str:
    asked = {
        "root": ROOT,
        "store": payload.store,
        "files": [asdict(payload.wheel), asdict(payload.bundle)],
        "packages": [need.partition("==")[0] for need in payload.requirements],
    }
    return json.dumps(asked, sort_keys=True)


def _script(payload: Payload, options: KubernetesOptions, gpus: int) -> str:
    return render_boot_script(
        payload,
        PodPlatform,
        {"uri": payload.store},
        root=ROOT,
        pythons=PYTHONS,
        more={"grace_s": options.grace_s, "gpus": gpus},
        entry="boot_pod",
    )
