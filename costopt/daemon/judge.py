"""Whether a job that is handed in could end in time, by the market as the last tick saw it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from threading import Lock

from costopt.daemon.board import SharedState
from costopt.domain.account import Account
from costopt.domain.errors import CostoptError, InfeasibleError
from costopt.domain.job import Job
from costopt.domain.policy import Policy
from costopt.optimize.planner import plan
from costopt.optimize.request import build_request
from costopt.planning.request import build_job_view, raise_if_infeasible

PLAN_S = 5.0
LOCK_TIMEOUT_S = 10.0
"""How long a job waits for the plans of others, by the wall."""


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """``in_time`` None: not known, or no plan was asked for; ``why`` says so, or why not.

    A plan for the job alone finishes by ``finish_at`` (95th percentile) and costs ``usd`` (median).
    """

    in_time: bool | None
    why: str = ""
    finish_at: datetime | None = None
    usd: float | None = None


class AdmissionPlanner:
    """Plans one job at a time, in the thread of who asks: a tick never waits for it."""

    def __init__(self, board: SharedState, account: Account) -> None:
        self._board = board
        self._account = account
        self._planning = Lock()

    def check(self, job: Job, policy: Policy) -> AdmissionResult:
        """Raises InfeasibleError where no plan ends the job in time."""
        if not self._board.snapshot.offers:
            return AdmissionResult(None, "no prices are known yet")
        if not self._planning.acquire(timeout=LOCK_TIMEOUT_S):
            return AdmissionResult(None, "other jobs are being planned")
        try:
            return self._planned(job, policy)
        except InfeasibleError:
            raise
        except CostoptError as error:
            return AdmissionResult(None, error.message)
        finally:
            self._planning.release()

    def _planned(self, job: Job, policy: Policy) -> AdmissionResult:
        seen = self._board.snapshot
        account = self._account
        account = replace(account, quotas=(*account.quotas, *self._board.quotas))
        request = build_request(build_job_view(job, policy, seen.offers, seen.now, account))
        made = plan(request, time_limit_s=PLAN_S, explain=False)
        raise_if_infeasible(made, job)
        forecast = made.forecast_of(job.name)
        if forecast is None:
            return AdmissionResult(True)
        return AdmissionResult(True, "", forecast.finish_p95_at, forecast.usd_p50)
