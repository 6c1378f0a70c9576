"""Operations on jobs."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any

from costopt.controller.node_logs import TaskLog
from costopt.daemon.http.problems import HttpProblemError, spec_errors_as
from costopt.daemon.http.requests import (
    After,
    AfterByte,
    CommandId,
    CommandRequest,
    Cursor,
    DecisionId,
    JobName,
    JobRequest,
    JobStateFilter,
    Limit,
    LoggedNode,
    NameFilter,
    NodeId,
    PriorityRequest,
    Since,
    SubmitRequest,
    TaskNumber,
    TenantFilter,
)
from costopt.daemon.http.routes import ApiCall, Call, RouteList
from costopt.daemon.http.schemas import (
    DecisionList,
    EventList,
    JobDetail,
    JobDocuments,
    JobList,
    OccurrenceList,
    SubmissionInfo,
    SubmitResponse,
    model_of,
)
from costopt.daemon.intake.admission import (
    AdmissionResult,
    AdmittedJob,
    check_account,
    check_local_paths,
)
from costopt.daemon.intake.impact import ImpactResult
from costopt.daemon.lists import job_facts, page_of
from costopt.daemon.node_commands import CommandState, PostedCommand, post_command, read_command
from costopt.daemon.shared_state import DecisionRow, JobStatus
from costopt.domain.control import JobFilter, Scope, Submission
from costopt.domain.errors import InfeasibleError
from costopt.ledger.job_query import JobQuery
from costopt.protocol.node_logs import LogChunk

MAX_OCCURRENCES = 1000
"""Recurring jobs go on for ever; so many are listed, page by page."""

JOB_OPERATIONS = RouteList()
operation = JOB_OPERATIONS.add
tenant_operation = partial(operation, by_tenants=True)


@tenant_operation("GET /v1/jobs", Scope.READ, JobList)
def list_jobs(
    call: Call,
    state: JobStateFilter = JobFilter.RECENT,
    tenant: TenantFilter = None,
    name: NameFilter = "",
    since: Since = None,
    cursor: Cursor = None,
    limit: Limit = 200,
) -> dict[str, Any]:
    """List jobs."""
    every = call.reader.jobs()
    found = JobQuery(state, tenant, name, since).select(every, job_facts)
    page = page_of(found, lambda status: status.submission.name, cursor, limit, every)
    return {"jobs": page.rows, "next": page.next}


@tenant_operation("GET /v1/occurrences", Scope.READ, OccurrenceList)
def occurrences(call: Call, cursor: Cursor = None, limit: Limit = 20) -> dict[str, Any]:
    """List the next occurrences of recurring jobs."""
    count = MAX_OCCURRENCES if cursor else min(limit + 1, MAX_OCCURRENCES)
    page = page_of(call.reader.upcoming(count), lambda each: each.job, cursor, limit)
    return {"occurrences": page.rows, "next": page.next}


@tenant_operation("GET /v1/jobs/{job}", Scope.READ, JobDetail, refusal=404)
def show_job(job: JobName, call: Call) -> JobStatus:
    """Show one job."""
    return call.reader.job(job)


@tenant_operation("GET /v1/jobs/{job}/documents", Scope.SUBMIT, JobDocuments, refusal=404)
def job_documents(job: JobName, call: Call) -> dict[str, Any]:
    """Get the texts that a job was submitted with."""
    submission = call.reader.job(job).submission
    return {"job": submission.job_document, "policy": submission.policy_document}


@tenant_operation("GET /v1/jobs/{job}/events", Scope.READ, EventList, refusal=404)
def job_events(job: JobName, call: Call, after: After = 0, limit: Limit = 1000) -> dict[str, Any]:
    """List a job's events."""
    return {"events": call.reader.events(job, after, limit)}


@tenant_operation("GET /v1/jobs/{job}/decisions", Scope.READ, DecisionList, refusal=404)
def job_decisions(
    job: JobName, call: Call, cursor: Cursor = None, limit: Limit = 100
) -> dict[str, Any]:
    """List a job's decisions."""
    return _decisions(call, job, cursor, limit)


@tenant_operation("GET /v1/jobs/{job}/logs", Scope.READ, model_of(LogChunk), refusal=404)
def job_logs(job: JobName, call: Call, node: LoggedNode = None, after: AfterByte = 0) -> LogChunk:
    """Read a node's log."""
    return call.reader.logs(job, node, after)


@tenant_operation("GET /v1/jobs/{job}/tasks/{task}/log", Scope.READ, model_of(TaskLog), refusal=404)
def task_log(job: JobName, task: TaskNumber, call: Call) -> TaskLog:
    """Read the log of an array's task."""
    return call.reader.task_log(job, task)


@tenant_operation(
    "POST /v1/jobs/{job}/commands", Scope.SUBMIT, model_of(PostedCommand), refusal=409,
    status_code=202,
)  # fmt: skip
def run_command(job: JobName, body: CommandRequest, call: Call) -> PostedCommand:
    """Have a living node of a job run a command."""
    return post_command(call.service, call.job(job), body.node, body.command, body.timeout_s)


@tenant_operation(
    "GET /v1/jobs/{job}/commands/{node}/{command}", Scope.SUBMIT, model_of(CommandState),
    refusal=404,
)  # fmt: skip
def show_command(job: JobName, node: NodeId, command: CommandId, call: Call) -> CommandState:
    """Show what a command on a node printed."""
    call.job(job)
    return read_command(call.service, job, node, command)


@operation("GET /v1/events", Scope.READ, EventList)
def events(call: Call, after: After = 0, limit: Limit = 1000) -> dict[str, Any]:
    """List the events of all jobs."""
    return {"events": list(islice(call.service.ledger.events(None, after), limit))}


@tenant_operation("GET /v1/decisions", Scope.READ, DecisionList)
def decisions(call: Call, cursor: Cursor = None, limit: Limit = 100) -> dict[str, Any]:
    """List the last decision of each job."""
    return _decisions(call, None, cursor, limit)


def _decisions(call: ApiCall, job: str | None, cursor: str | None, limit: int) -> dict[str, Any]:
    every = call.reader.decisions(job)
    with spec_errors_as(422):
        page = page_of(every, lambda row: row.decision.decision_id, cursor, limit)
    return {"decisions": page.rows, "next": page.next}


@tenant_operation("GET /v1/decisions/{decision}", Scope.READ, model_of(DecisionRow), refusal=404)
def decision(decision: DecisionId, call: Call) -> DecisionRow:
    """Show why a decision was made."""
    return call.reader.decision(decision)


@tenant_operation("POST /v1/jobs", Scope.SUBMIT, SubmitResponse, status_code=201, refusal=409)
def submit_job(body: SubmitRequest, call: Call) -> dict[str, Any]:
    """Submit a job."""
    with spec_errors_as(422):
        admitted = _admitted_job(body, call)
    try:
        verdict = call.service.planner.check(admitted)
    except InfeasibleError as error:
        if not body.anyway:
            raise
        verdict = AdmissionResult(False, error.message)
    submission = call.service.submit(admitted)
    known = {name: getattr(submission, name) for name in SubmissionInfo.model_fields}
    return {**known, "verdict": verdict}


@tenant_operation("POST /v1/plans", Scope.SUBMIT, model_of(ImpactResult), refusal=409)
def plan_job(body: JobRequest, call: Call) -> ImpactResult:
    """Plan a job beside those that run, without submitting it."""
    with spec_errors_as(422):
        admitted = _admitted_job(body, call)
    return call.service.planner.impact(admitted, call.caller.tenant)


def _admitted_job(body: JobRequest, call: ApiCall) -> AdmittedJob:
    caller, folders = call.caller, call.context.folders_for(call.caller)
    admitted = call.service.read(
        body.job,
        body.policy,
        workdir=body.workdir or str(folders[0]),
        who=caller.name,
        priority=body.priority if isinstance(body, SubmitRequest) else 0,
    )
    if not caller.can_see(admitted.job.tenant):
        raise HttpProblemError(
            403,
            f"token {caller.name!r} may not submit a job of tenant {admitted.job.tenant!r}",
            hint=f"name tenant: {caller.tenant} in the job file",
        )
    check_account(admitted, call.service.account)
    if not caller.local:
        check_local_paths(admitted.job, folders)
    return admitted


@tenant_operation("POST /v1/jobs/{job}/pause", Scope.SUBMIT, SubmissionInfo, refusal=409)
def pause_job(job: JobName, call: Call) -> Submission:
    """Checkpoint, release the nodes, and keep the job for later."""
    call.job(job)
    return call.service.pause(job, call.caller.name)


@tenant_operation("POST /v1/jobs/{job}/resume", Scope.SUBMIT, SubmissionInfo, refusal=409)
def resume_job(job: JobName, call: Call) -> Submission:
    """Resume a job that was paused, or that a guard stopped."""
    call.job(job)
    return call.service.resume(job, call.caller.name)


@tenant_operation("POST /v1/jobs/{job}/cancel", Scope.SUBMIT, SubmissionInfo, refusal=409)
def cancel_job(job: JobName, call: Call) -> Submission:
    """Checkpoint, release the nodes, and never run the job again."""
    call.job(job)
    return call.service.cancel(job, call.caller.name)


@tenant_operation("PUT /v1/jobs/{job}/priority", Scope.SUBMIT, SubmissionInfo, refusal=409)
def reprioritize_job(job: JobName, body: PriorityRequest, call: Call) -> Submission:
    """Serve a job before or after others."""
    call.job(job)
    return call.service.reprioritize(job, body.priority, call.caller.name)
