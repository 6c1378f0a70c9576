"""Checks whether a cluster can run jobs, before anything is launched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from urllib.parse import urlsplit

from costopt.domain.errors import ProviderError
from costopt.domain.market import CapacityType
from costopt.provider.base import Check, CheckStatus
from costopt.provider.slurm_commands import CommandRunner
from costopt_slurm.access import SlurmAccess
from costopt_slurm.cluster_state import ClusterState, NodeListing, reserved_from
from costopt_slurm.options import SlurmOptions
from costopt_slurm.records import ClusterSettings

MIN_VERSION = (21, 8)
LOCAL_DISKS = frozenset({"ext2/ext3", "xfs", "btrfs", "tmpfs", "overlayfs", "zfs"})
MIN_GRACE_S = 30.0
NOT_TRIED = Check(
    "nodes",
    CheckStatus.MISSING,
    "folder, Python and store were not tried: slurmrestd runs no commands",
    "see docs/slurm.md for what nodes have to share",
)


class SlurmDoctor:
    """Runs the checks in order, from what everything needs to what only nodes need."""

    def __init__(self, queries: SlurmAccess, cluster: ClusterState, options: SlurmOptions) -> None:
        self._queries = queries
        self._cluster = cluster
        self._options = options

    def checks(self, store: str | None, now: datetime) -> Iterator[Check]:
        """Yield the findings; where Slurm does not answer nothing else is checked."""
        try:
            settings = self._cluster.settings(now)
            snapshot = self._cluster.snapshot()
        except ProviderError as error:
            yield Check.broken("slurmctld", error)
            return
        place = " on ".join(filter(None, (settings.name, self._queries.where)))
        yield _version(settings.version, place)
        for name in self._options.partitions:
            yield from self._partition(name, snapshot, now)
        yield from _settings(settings)
        runner = self._queries.runner
        if runner is None:
            yield NOT_TRIED
            return
        yield Check.of("folder", partial(_folder, runner, self._options.folder))
        yield Check.of("Python", partial(_python, runner, self._options.python))
        yield Check.of("store", partial(_store, runner, store))

    def _partition(self, name: str, snapshot: NodeListing, now: datetime) -> Iterator[Check]:
        about, terms = f"partition {name}", self._options.partitions[name]
        try:
            state = self._cluster.partition(name, now)
            preempted = self._cluster.is_preempted(state, now)
        except ProviderError as error:
            yield Check.broken(about, error)
            return
        kind = terms.capacity_type(preempted)
        grace_s, limit_s = self._cluster.grace_s(name, now), self._cluster.max_run_s(state)
        limit = "no time limit" if limit_s is None else f"{limit_s / 3600:g} h at most"
        said = {
            CapacityType.SPOT: f"preemptible, {grace_s:g} s grace",
            CapacityType.ON_DEMAND: "not preemptible, firm",
        }.get(kind, "not preemptible, queued")
        if name == self._options.owned_partition:
            kind, said = CapacityType.RESERVED, "owned, shared out by the policy priced"
        detail = f"{kind.value}: {said}, {limit}{'' if state.is_up else ', not up'}"
        problem = self._problem(name, state.is_up, limit_s, grace_s, kind)
        verdict = CheckStatus.BROKEN if limit_s is None else CheckStatus.OK
        yield Check(about, verdict, detail, problem)
        for node_type in self._options.node_types_of(name):
            hosts = snapshot.hosts_of(name, self._options.node_types[node_type], terms.constraint)
            idle = sum(node.is_idle for node in hosts)
            at = reserved_from(snapshot.reservations, hosts, terms.reservation, now)
            reserved = "" if at is None else f"; reserved from {at:%Y-%m-%d %H:%M} UTC on"
            hint = None if hosts else "compare gres and constraint with `sinfo -o '%P %N %G %f'`"
            verdict = CheckStatus.OK if hosts else CheckStatus.BROKEN
            yield Check(
                f"{about} {node_type}", verdict, f"{len(hosts)} nodes, {idle} idle{reserved}", hint
            )

    def _problem(
        self, name: str, is_up: bool, limit_s: float | None, grace_s: float, kind: CapacityType
    ) -> str | None:
        if limit_s is None:
            return "add max_run_h: a job without a limit never starts before a maintenance"
        if not is_up:
            return f"`scontrol show partition {name}` shows its state"
        if kind is CapacityType.SPOT and grace_s < MIN_GRACE_S:
            return "checkpoints have to be saved in less than the grace time, or work is lost"
        is_priced = self._options.partitions[name].usd_per_hour(1) is not None
        if kind is not CapacityType.RESERVED and not is_priced:
            return "it has no price, so it is left out: add usd_per_gpu_hour, 0 if it is free"
        return None


def _folder(runner: CommandRunner, path: str, name: str) -> Check:
    kind = runner.run("stat", "--file-system", "--format=%T", path).strip()
    if kind in LOCAL_DISKS:
        return Check(
            name,
            CheckStatus.MISSING,
            f"{path} looks like a disk of the login node ({kind})",
            "nodes have to share it: use one below your home or a project folder",
        )
    return Check(name, CheckStatus.OK, f"{path} on {kind}")


def _python(runner: CommandRunner, python: str, name: str) -> Check:
    """Of the login node: the shared one is that of the nodes."""
    code = "import costopt, sys; print(costopt.__version__, sys.version.split()[0])"
    said = runner.run(python, "-c", code).split()
    return Check(name, CheckStatus.OK, f"costopt {said[0]} on Python {said[1]}")


def _store(runner: CommandRunner, store: str | None, name: str) -> Check:
    if store is None:
        hint = "add store: a folder that nodes share, or s3://bucket/prefix"
        return Check(name, CheckStatus.MISSING, "the account names none", hint)
    parts = urlsplit(store)
    if parts.scheme not in ("", "file"):
        hint = "nodes need a way out, and credentials in your home, to reach it"
        return Check(name, CheckStatus.OK, f"{store}: not tried from nodes", hint)
    runner.run("test", "-d", parts.path)
    return _folder(runner, parts.path, name)


def _version(version: str, where: str) -> Check:
    found = re.match(r"(\d+)\.(\d+)", version)
    old = found is None or (int(found[1]), int(found[2])) < MIN_VERSION
    return Check(
        "Slurm",
        CheckStatus.MISSING if old else CheckStatus.OK,
        f"{version or 'unknown version'} ({where})",
        "tried with 22.05; before 21.08 columns may be missing" if old else None,
    )


def _settings(settings: ClusterSettings) -> Iterator[Check]:
    if settings.accounting:
        yield Check("accounting", CheckStatus.OK, "sacct knows how jobs ended")
    else:
        yield Check(
            "accounting",
            CheckStatus.MISSING,
            "the cluster has none",
            f"Slurm forgets jobs {settings.min_job_age_s or 300:.0f} s after their end: unless the "
            "controller runs meanwhile, their end may not be known",
        )
    if settings.proctrack is not None and not settings.proctrack.endswith("cgroup"):
        yield Check(
            "signals",
            CheckStatus.MISSING,
            f"{settings.proctrack}: Slurm's SIGTERM reaches trainers, too",
            "costopt.train saves on it within 30 s; a trainer of your own has to handle it",
        )
