"""``python -m costopt.agent``: serve one job on this node until the agent is asked to leave."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from costopt.agent.agent import Agent
from costopt.agent.bundle import fetch_bundle
from costopt.agent.contact import ContactSettings
from costopt.agent.data import GIB
from costopt.agent.gpu_health import GpuHealthMonitor, open_xid_reader
from costopt.agent.launch_spec import LaunchMethod
from costopt.agent.meters import NodeMeter, open_gpu_meter, open_rapl_meter
from costopt.agent.network_meters import open_dcgm, open_redfish
from costopt.agent.notices import KINDS, notice_source
from costopt.agent.secret_values import SecretReader
from costopt.agent.settings import AgentSettings, default_memory_bytes, duration_s, gib, interval_s
from costopt.domain.errors import StoreError
from costopt.store import open_store


def main() -> None:
    """Parse the command line and serve."""
    parser = _parser()
    options = parser.parse_args()
    try:
        notices = notice_source(options.notices, options.notice_poll_s)
        secrets = SecretReader.parse(options.secrets)
    except ValueError as error:
        parser.error(str(error))
    settings = AgentSettings(
        job=options.job,
        node_id=options.node,
        folder=options.folder.resolve(),
        host=options.host,
        launcher=LaunchMethod(options.launcher),
        processes=options.processes,
        poll_s=_poll_s(options.poll_s, options.store),
        heartbeat_s=_heartbeat_s(options.heartbeat_s, options.store),
        grace_s=options.grace_s,
        standby=options.standby,
        data_folder=options.data_folder,
        data_max_bytes=round(options.data_gib * GIB),
        workdir=options.workdir,
        snapshot_bytes=_snapshot_bytes(options.snapshot_gib),
        snapshot_folder=options.snapshot_folder,
        snapshot_disk_bytes=round(options.snapshot_disk_gib * GIB),
        logs_s=options.logs_s,
        contact=None
        if options.max_unreachable_s is None
        else ContactSettings(
            options.max_unreachable_s, options.renew_timer, options.controller_lock
        ),
    )
    if options.bundle is not None and options.workdir is None:
        parser.error("--bundle needs --workdir")
    if options.redfish is not None and options.redfish_credentials is None:
        parser.error("--redfish needs --redfish-credentials")
    own_machine = options.meter == "auto"
    meter = _open_meters(options) if own_machine else None
    xids = open_xid_reader() if own_machine else tuple
    gpus = GpuHealthMonitor(options.nvidia_smi, options.health_s, xids)
    store = open_store(options.store)
    if options.bundle is not None:
        try:
            fetch_bundle(store, options.bundle, options.bundle_sha256, options.workdir)
        except StoreError as error:
            parser.exit(1, f"{error}\n")
    Agent(settings, store, notices, meter, gpus, secrets).run()


def _open_meters(options: argparse.Namespace) -> NodeMeter:
    """Return the node's meter, and say once what cannot be measured."""
    gpu, no_gpu = open_gpu_meter() if options.dcgm is None else open_dcgm(options.dcgm)
    cpu, no_cpu = open_rapl_meter()
    node, no_node = None, ""
    if options.redfish is not None:
        node, no_node = open_redfish(
            options.redfish,
            options.redfish_credentials,
            options.redfish_ca,
            options.redfish_fingerprint,
        )
    for why in filter(None, (no_gpu, no_cpu, no_node)):
        print(why, file=sys.stderr, flush=True)  # noqa: T201
    return NodeMeter(gpu, cpu, node)


def _poll_s(asked: float | None, store: str) -> float:
    return asked if asked is not None else 1.0 if _is_remote(store) else 0.1


def _heartbeat_s(asked: float | None, store: str) -> float:
    return asked if asked is not None else 2.0 if _is_remote(store) else 0.5


def _snapshot_bytes(asked_gib: float | None) -> int:
    return default_memory_bytes() if asked_gib is None else round(asked_gib * GIB)


def _is_remote(store: str) -> bool:
    return "://" in store and not store.startswith("file:")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m costopt.agent", description=__doc__)
    parser.add_argument("--store", required=True, help="folder or s3:// or gs:// address")
    parser.add_argument("--job", required=True, help="the job's name")
    parser.add_argument("--node", required=True, help="this node's id, as the provider names it")
    parser.add_argument(
        "--notices", required=True, help=f"source of the provider's interruption notices: {KINDS}"
    )
    parser.add_argument(
        "--notice-poll-s", type=interval_s, default=1.0, help="seconds between polls for notices"
    )
    parser.add_argument(
        "--secrets",
        default="none",
        metavar="SOURCE",
        help="where this node reads secrets, and whose role it has: aws, gcp, host:FOLDER or none",
    )
    parser.add_argument(
        "--meter",
        choices=["auto", "none"],
        default="auto",
        help="measure this machine's GPUs and CPUs, or measure nothing",
    )
    parser.add_argument(
        "--dcgm",
        metavar="URL",
        help="read the GPUs from this DCGM exporter in place of NVML, as http://localhost:9400/metrics",
    )
    parser.add_argument(
        "--redfish",
        metavar="URL",
        help="read the whole node's power from its BMC: https://HOST or a chassis of it, as "
        "https://HOST/redfish/v1/Chassis/ID",
    )
    parser.add_argument(
        "--redfish-credentials", type=Path, metavar="FILE", help="holds USER:PASSWORD"
    )
    parser.add_argument(
        "--redfish-ca", type=Path, metavar="FILE", help="certificates (PEM) that sign the BMC's"
    )
    parser.add_argument(
        "--redfish-fingerprint", metavar="SHA256", help="of the BMC's own certificate"
    )
    parser.add_argument(
        "--nvidia-smi", default="nvidia-smi", help="tool that reads the GPUs' health, if it exists"
    )
    parser.add_argument(
        "--health-s", type=interval_s, default=15.0, help="seconds between its calls"
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="for the trainer's logs, status and stop notices"
    )
    parser.add_argument(
        "--workdir", type=Path, help="the job's folder on this node, if not the controller's path"
    )
    parser.add_argument(
        "--bundle", metavar="KEY", help="unpack this archive of the store into --workdir"
    )
    parser.add_argument("--bundle-sha256", default="", help="its digest")
    parser.add_argument(
        "--standby",
        action="store_true",
        help="keep a warm process ready to replace a failed elastic trainer",
    )
    parser.add_argument("--data-folder", type=Path, help="cache the job's data in this folder")
    parser.add_argument("--data-gib", type=gib, default=100.0, help="data cache limit, in GiB")
    parser.add_argument(
        "--snapshot-gib",
        type=gib,
        help="GiB of memory for this node's and a peer's snapshots; default: a quarter; 0: none",
    )
    parser.add_argument("--snapshot-folder", type=Path, help="fast disk for snapshot replicas")
    parser.add_argument(
        "--snapshot-disk-gib", type=gib, default=100.0, help="limit of --snapshot-folder, in GiB"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address under which the other nodes reach this one"
    )
    parser.add_argument(
        "--launcher", choices=[launcher.value for launcher in LaunchMethod], default="torchrun"
    )
    parser.add_argument("--processes", type=int, default=1, help="trainer processes on this node")
    parser.add_argument(
        "--poll-s",
        type=interval_s,
        help="seconds between polls; default: 0.1, or 1 if the store charges for each request",
    )
    parser.add_argument(
        "--heartbeat-s",
        type=interval_s,
        help="seconds between heartbeats; default: 0.5, or 2 if the store is remote",
    )
    parser.add_argument(
        "--logs-s",
        type=interval_s,
        help="seconds between uploads of the trainers' output to the store; default: no uploads",
    )
    parser.add_argument(
        "--max-unreachable-s",
        type=interval_s,
        help="save and leave after so many seconds without a sign of controller and store",
    )
    parser.add_argument(
        "--renew-timer", metavar="UNIT", help="systemd timer that ends this machine meanwhile"
    )
    parser.add_argument(
        "--controller-lock",
        type=Path,
        metavar="FILE",
        help="the controller holds a lock on it while it runs; then the store does not count",
    )
    parser.add_argument(
        "--grace-s", type=duration_s, default=120.0, help="time to save and stop, in s"
    )
    return parser


if __name__ == "__main__":
    main()
