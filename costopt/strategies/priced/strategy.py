"""The strategy `priced`: it shrinks, grows, preempts and resumes a cluster's jobs, all together.

A job that the cluster has no room for goes to spot where that is worth its price. Nodes that an
account owns are scheduled; other capacity is taken for such jobs, and by the shield where a
deadline binds.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import ClassVar

from costopt.domain.view import CapacityPlan, Decision, Desired, JobView, View
from costopt.optimize.rounds.priced import PricedPolicy
from costopt.strategies.gang_options import GangOption
from costopt.strategies.priced.cluster_job import (
    ClusterGangs,
    ClusterJob,
    cluster_gangs,
    cluster_job,
)
from costopt.strategies.priced.cluster_rounds import ClusterRounds
from costopt.strategies.priced.overflow import SpotSearch, is_better_here
from costopt.strategies.priced.owned_nodes import find_owned_nodes
from costopt.strategies.remaining_time import keep_current

EARLY_S = 0.05
"""A round may be so much early: ticks are not exact."""
OUTAGE_S = 600.0
"""For so long, nodes that are no longer offered are not taken to be gone."""


class PricedStrategy:
    """``restart_s`` is what a change of its gang costs a job, beyond what its file says.

    There is a round every ``round_s``; in ticks between two, jobs that wait may start, and no gang
    is changed for another reason.

    One instance decides for the jobs of all tenants: a cluster has one price.
    """

    joint: ClassVar[bool] = True
    joins_tenants: ClassVar[bool] = True
    plans_open_ended: ClassVar[bool] = True
    starts_between_ticks: ClassVar[bool] = True

    def __init__(self, restart_s: float = 60.0, round_s: float = 60.0) -> None:
        self.restart_s, self.round_s = restart_s, round_s
        self._rounds_due = -1
        self._began_at: datetime | None = None
        self._decided_at: datetime | None = None
        self._seen_at: datetime | None = None
        self._rounds: dict[tuple[str, str, str], ClusterRounds] = {}
        self._gangs: dict[str, tuple[object, ClusterGangs | None, ClusterRounds | None]] = {}
        self._jobs: dict[str, ClusterJob] = {}
        self._leaving: dict[str, GangOption] = {}
        self._refused: set[str] = set()
        self._spot = SpotSearch()

    def decide(self, view: View) -> Desired:
        """Return the decisions of this round; asked again at the same instant, the same sizes."""
        self._began_at = self._began_at or view.now
        if view.now != self._decided_at:
            if not self._see_nodes(view):
                return Desired(tuple(_kept(each) for each in view.jobs))
            self._decide_rounds(view)
            self._decided_at = view.now
        return Desired(tuple(self._decision(each) for each in view.jobs))

    def _see_nodes(self, view: View) -> bool:
        """Learn which nodes there are; False where some are missing, for a time."""
        found = find_owned_nodes(view)
        zones = {nodes.key: nodes.zones for nodes in found}
        if self._rounds and {key: r.nodes.zones for key, r in self._rounds.items()} == zones:
            self._seen_at = view.now
            running = {node.job for job_view in view.jobs for node in job_view.nodes}
            for nodes in found:
                self._rounds[nodes.key].see(nodes, running)
            return True
        known = sum(len(rounds.nodes.zones) for rounds in self._rounds.values())
        is_fewer = sum(len(nodes.zones) for nodes in found) < known
        missing_s = (view.now - (self._seen_at or view.now)).total_seconds()
        if is_fewer and missing_s < OUTAGE_S:
            return False
        weights = {tenant.name: tenant.weight for tenant in view.account.tenants.values()}
        policy = PricedPolicy(self.restart_s)
        self._rounds = {nodes.key: ClusterRounds(nodes, policy, weights) for nodes in found}
        self._gangs, self._seen_at = {}, view.now
        return True

    def _decide_rounds(self, view: View) -> None:
        here: dict[int, list[ClusterJob]] = {}
        elsewhere: dict[int, list[tuple[JobView, ClusterJob]]] = {}
        names = {job_view.job.name for job_view in view.jobs}
        self._gangs = {name: known for name, known in self._gangs.items() if name in names}
        # What was sent to spot and has no node there met a guard, a quota or a lack of capacity.
        self._refused |= {each.job.name for each in view.jobs if not each.nodes} & set(
            self._leaving
        )
        self._refused &= names
        self._jobs, self._leaving = {}, {}
        known = []
        for job_view in view.jobs:
            gangs, rounds = self._gangs_of(job_view)
            if gangs is not None and rounds is not None:
                job = cluster_job(view, job_view, gangs, self._seconds(job_view.job.start_at))
                known.append((job_view, job, rounds))
        cloud = _cloud(view)
        rests = self._spot.rests(cloud, [(job_view, job) for job_view, job, _ in known])
        for job_view, each, rounds in known:
            is_here = self._is_here(job_view, each, rounds)
            job, rest = each, rests.get(each.name)
            if rest is not None and each.name not in self._refused:
                job = replace(each, spot_usd_per_gpu_hour=rest.usd_per_gpu_hour)
            self._jobs[job.name] = job
            if is_here:
                here.setdefault(id(rounds), []).append(job)
            else:
                elsewhere.setdefault(id(rounds), []).append((job_view, job))
        now_s, before = self._seconds(view.now), self._rounds_due
        self._rounds_due = int((now_s + EARLY_S) // self.round_s)
        is_round = self._rounds_due > before
        spot_usd = {name: rest.extra_usd for name, rest in rests.items()}
        for rounds in self._rounds.values():
            jobs, away = here.get(id(rounds), []), elsewhere.get(id(rounds), ())
            stay = [
                job
                for job_view, job in away
                if not self._returns(cloud, job_view, job, rounds, jobs, now_s)
            ]
            rounds.decide(now_s, jobs, stay, is_round=is_round)
            leaving = rounds.leaving(now_s, jobs, spot_usd)
            self._leaving |= {name: rests[name].option for name in leaving}

    def _is_here(self, job_view: JobView, job: ClusterJob, rounds: ClusterRounds) -> bool:
        """Whether the job is for the cluster's round, and not on other capacity."""
        slices = rounds.nodes.slices(job_view)
        if not job_view.nodes or slices:
            if slices and not rounds.knows(job.name):
                since = max(node.launched_at for node in job_view.nodes)
                rounds.adopt(job, slices, self._seconds(since))
            return True
        rounds.leave(job.name)
        self._refused.discard(job.name)
        return False

    def _returns(
        self,
        cloud: View,
        job_view: JobView,
        job: ClusterJob,
        rounds: ClusterRounds,
        jobs: list[ClusterJob],
        now_s: float,
    ) -> bool:
        """Let a job that is elsewhere join ``jobs`` if the cluster is cheaper with it there, too.

        At the price without it, it would come back, raise the price, and leave again.
        """
        if rounds.idle_gpus < job.gangs.options[0][0]:
            return False
        price, gpus = rounds.price_and_gpus_with(now_s, jobs, job)
        returns = is_better_here(cloud, job_view, job, price, gpus, self.restart_s)
        if returns:
            jobs.append(job)
        return returns

    def _decision(self, job_view: JobView) -> Decision:
        name = job_view.job.name
        gangs, rounds = self._gangs_of(job_view)
        if gangs is None or rounds is None or name not in self._jobs:
            return replace(_kept(job_view), reason="no owned node can run the job")
        gpus, price = rounds.held_gpus(name), rounds.price_usd_per_gpu_hour
        plan = CapacityPlan(rounds.nodes.region, price, gpus, gangs.asked)
        at = f"at ${price:.4g} per GPU-hour"
        if gpus:
            reason = f"{gpus} GPUs, {gangs.asked} asked for, {at}"
            targets = rounds.nodes.targets(rounds.slices(name))
            return Decision(name, targets, reason, plan=plan)
        if job_view.nodes and not rounds.nodes.slices(job_view):
            reason = f"cheaper than the cluster {at}"
            return Decision(name, keep_current(job_view), reason, plan=plan)
        if name in self._leaving:
            reason = "leaving the queue saves more than spot costs"
            return Decision(name, self._leaving[name].targets, reason, plan=plan)
        return Decision(name, (), f"waits for {gangs.asked} GPUs {at}", plan=plan)

    def _gangs_of(self, job_view: JobView) -> tuple[ClusterGangs | None, ClusterRounds | None]:
        """The job's gangs, on the nodes of the type of which there are most that it can run on."""
        job, phase = job_view.job, job_view.job.phase_at(job_view.progress.done_units)
        parts = (job.resources, job.throughput, phase)
        known = self._gangs.get(job.name)
        if known is None or known[0] != parts:
            found = (
                (gangs, rounds)
                for rounds in self._rounds.values()
                if (gangs := cluster_gangs(job, phase, rounds.nodes)) is not None
            )
            known = self._gangs[job.name] = (parts, *next(found, (None, None)))
        return known[1], known[2]

    def _seconds(self, at: datetime) -> float:
        assert self._began_at is not None
        return (at - self._began_at).total_seconds()


def _cloud(view: View) -> View:
    """The view without the nodes of clusters."""
    return replace(view, offers=tuple(o for o in view.offers if not view.account.owns(o.pool)))


def _kept(job_view: JobView) -> Decision:
    reason = "what runs is kept, as nodes of the cluster are not offered now"
    return Decision(job_view.job.name, keep_current(job_view), reason)
