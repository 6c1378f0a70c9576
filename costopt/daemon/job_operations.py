"""What can be asked and told of jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from costopt.daemon.answers import (
    DecisionList,
    EventList,
    JobDetail,
    JobDocuments,
    JobList,
    PriorityRequest,
    SubmissionInfo,
    SubmitRequest,
    SubmitResponse,
    job_detail,
    job_row,
    submitted,
    taken,
)
from costopt.daemon.folders import check_local_paths
from costopt.daemon.json_schema import IntegerRange
from costopt.daemon.judge import AdmissionResult
from costopt.daemon.operation import (
    ID,
    JOB_NAME,
    MAX_SAFE_INTEGER,
    ApiCall,
    Operation,
    Parameter,
    in_path,
    in_query,
)
from costopt.daemon.reach import ApiContext
from costopt.daemon.refusals import HttpProblemError
from costopt.daemon.views import DecisionRow, JobStatus
from costopt.domain.errors import InfeasibleError
from costopt.domain.submission import Submission
from costopt.domain.token import Scope
from costopt.protocol.node_logs import LogChunk

NAME = in_path("job", JOB_NAME, "the job's name")
AFTER = in_query(
    "after", Annotated[int, IntegerRange(0, MAX_SAFE_INTEGER)], "only what follows this number", 0
)
BYTE = in_query(
    "after", Annotated[int, IntegerRange(0, MAX_SAFE_INTEGER)], "only what follows this byte", 0
)
NODE = in_query("node", Annotated[str, ID], "the node; default: the job's newest")


def limit_parameter(default: int) -> Parameter:
    """How many at most."""
    return in_query("limit", Annotated[int, IntegerRange(1, 1000)], "how many at most", default)


def job_operations(reach: ApiContext) -> tuple[Operation, ...]:
    """In the order of the document."""
    return (*_looking(reach), _handing_in(reach), *_steering(reach))


def _existing(reach: ApiContext) -> Callable[[ApiCall], JobStatus]:
    """Whether the path names a job that is the caller's to see."""
    return lambda call: reach.reader(call.caller).job(call.values["job"])


def _looking(reach: ApiContext) -> tuple[Operation, ...]:
    service = reach.service
    exists = _existing(reach)

    def jobs(call: ApiCall) -> JobList:
        return JobList(tuple(job_row(status) for status in reach.reader(call.caller).jobs()))

    def events(call: ApiCall) -> EventList:
        return EventList(service.events(call.values.get("job"), **_page(call)))

    def documents(call: ApiCall) -> JobDocuments:
        known = service.job(call.values["job"]).submission
        return JobDocuments(known.job_document, known.policy_document)

    def logs(call: ApiCall) -> LogChunk:
        values = call.values
        return service.logs(values["job"], values["node"], values["after"])

    def decisions(call: ApiCall) -> DecisionList:
        job, limit = call.values.get("job"), call.values["limit"]
        return DecisionList(reach.reader(call.caller).decisions(job, limit))

    def decision(call: ApiCall) -> DecisionRow:
        return reach.reader(call.caller).decision(call.values["decision"])

    read = Scope.READ
    return (
        Operation(
            "listJobs", "GET", "/v1/jobs", read, "List all jobs.", JobList,
            jobs, by_tenants=True,
        ),
        Operation(
            "showJob", "GET", "/v1/jobs/{job}", read, "Show one job.", JobDetail,
            lambda call: job_detail(service.job(call.values["job"])), (NAME,), exists=exists,
            by_tenants=True,
        ),
        Operation(
            "jobDocuments", "GET", "/v1/jobs/{job}/documents", Scope.SUBMIT,
            "Get the texts that a job was handed in with.", JobDocuments, documents, (NAME,),
            exists=exists, by_tenants=True,
        ),
        Operation(
            "jobEvents", "GET", "/v1/jobs/{job}/events", read, "List a job's events.", EventList,
            events, (NAME, AFTER, limit_parameter(1000)), exists=exists, by_tenants=True,
        ),
        Operation(
            "jobDecisions", "GET", "/v1/jobs/{job}/decisions", read, "List a job's decisions.",
            DecisionList, decisions, (NAME, limit_parameter(100)), exists=exists, by_tenants=True,
        ),
        Operation(
            "jobLogs", "GET", "/v1/jobs/{job}/logs", read, "Read a node's log.", LogChunk, logs,
            (NAME, NODE, BYTE), exists=exists, refusal=404, by_tenants=True,
        ),
        Operation(
            "events", "GET", "/v1/events", read, "List the events of all jobs.", EventList, events,
            (AFTER, limit_parameter(1000)),
        ),
        Operation(
            "decisions", "GET", "/v1/decisions", read, "List the last decision of each job.",
            DecisionList, decisions, (limit_parameter(100),), by_tenants=True,
        ),
        Operation(
            "decision", "GET", "/v1/decisions/{decision}", read, "Tell why a decision was made.",
            DecisionRow, decision, (in_path("decision", ID, "the decision's id"),), refusal=404,
            by_tenants=True,
        ),
    )  # fmt: skip


def _handing_in(reach: ApiContext) -> Operation:
    service = reach.service

    def seen(call: ApiCall) -> Submission:
        body: SubmitRequest = call.body
        folders = reach.folders_for(call.caller)
        submission = service.read(
            body.job,
            body.policy,
            workdir=body.workdir or str(folders[0]),
            who=call.caller.name,
            priority=body.priority,
        )
        if not call.caller.can_see(submission.tenant):
            raise HttpProblemError(
                403,
                f"token {call.caller.name!r} may not hand in a job of tenant {submission.tenant!r}",
                hint=f"name tenant: {call.caller.tenant} in the job file",
            )
        job = service.admitted(submission).job
        if not call.caller.local:
            check_local_paths(job, folders)
        return submission

    def submit(call: ApiCall) -> SubmitResponse:
        submission = seen(call)
        try:
            verdict = service.verdict(submission)
        except InfeasibleError as error:
            if not call.body.anyway:
                raise
            verdict = AdmissionResult(False, error.message)
        return taken(service.submit(submission), verdict)

    return Operation(
        "submitJob", "POST", "/v1/jobs", Scope.SUBMIT, "Hand in a job.", SubmitResponse, submit,
        body=SubmitRequest, status=201, check=seen, refusal=409, by_tenants=True,
    )  # fmt: skip


def _steering(reach: ApiContext) -> tuple[Operation, ...]:
    service, exists = reach.service, _existing(reach)

    def pause(call: ApiCall) -> SubmissionInfo:
        return submitted(service.pause(call.values["job"], call.caller.name))

    def resume(call: ApiCall) -> SubmissionInfo:
        return submitted(service.resume(call.values["job"], call.caller.name))

    def cancel(call: ApiCall) -> SubmissionInfo:
        return submitted(service.cancel(call.values["job"], call.caller.name))

    def reprioritize(call: ApiCall) -> SubmissionInfo:
        name, body = call.values["job"], call.body
        return submitted(service.reprioritize(name, body.priority, call.caller.name))

    told = Scope.SUBMIT
    return (
        Operation(
            "pauseJob", "POST", "/v1/jobs/{job}/pause", told,
            "Save, give the nodes back, and keep the job for later.",
            SubmissionInfo, pause, (NAME,),
            exists=exists, refusal=409, by_tenants=True,
        ),
        Operation(
            "resumeJob", "POST", "/v1/jobs/{job}/resume", told,
            "Go on with a job that was paused, or that a guard stopped.", SubmissionInfo, resume,
            (NAME,), exists=exists, refusal=409, by_tenants=True,
        ),
        Operation(
            "cancelJob", "POST", "/v1/jobs/{job}/cancel", told,
            "Save, give the nodes back, and never run the job again.",
            SubmissionInfo, cancel, (NAME,),
            exists=exists, refusal=409, by_tenants=True,
        ),
        Operation(
            "reprioritizeJob", "PUT", "/v1/jobs/{job}/priority", told,
            "Serve a job before or after others.", SubmissionInfo, reprioritize, (NAME,),
            PriorityRequest, exists=exists, refusal=409, by_tenants=True,
        ),
    )  # fmt: skip


def _page(call: ApiCall) -> dict[str, int]:
    return {"after": call.values["after"], "limit": call.values["limit"]}
