"""What can be asked and told of jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from costopt.daemon.answers import (
    Decisions,
    Documents,
    Events,
    JobDetail,
    Jobs,
    PriorityBody,
    SubmitBody,
    Submitted,
    Taken,
    job_detail,
    job_row,
    submitted,
    taken,
)
from costopt.daemon.folders import check_folders
from costopt.daemon.json_schema import Bounds
from costopt.daemon.judge import Verdict
from costopt.daemon.operation import (
    ID,
    JOB_NAME,
    LARGEST,
    Call,
    Operation,
    Parameter,
    in_path,
    in_query,
)
from costopt.daemon.reach import Reach
from costopt.daemon.refusals import RefusedError
from costopt.daemon.views import DecisionRow, JobStatus, LogPiece
from costopt.domain.errors import InfeasibleError
from costopt.domain.submission import Submission
from costopt.domain.token import Scope

NAME = in_path("job", JOB_NAME, "the job's name")
AFTER = in_query("after", Annotated[int, Bounds(0, LARGEST)], "only what follows this number", 0)
BYTE = in_query("after", Annotated[int, Bounds(0, LARGEST)], "only what follows this byte", 0)
NODE = in_query("node", Annotated[str, ID], "the node; default: the job's newest")


def most(default: int) -> Parameter:
    """How many at most."""
    return in_query("limit", Annotated[int, Bounds(1, 1000)], "how many at most", default)


def job_operations(reach: Reach) -> tuple[Operation, ...]:
    """In the order of the document."""
    return (*_looking(reach), _handing_in(reach), *_steering(reach))


def _existing(reach: Reach) -> Callable[[Call], JobStatus]:
    """Whether the path names a job that is the caller's to see."""
    return lambda call: reach.reader(call.caller).job(call.values["job"])


def _looking(reach: Reach) -> tuple[Operation, ...]:
    service = reach.service
    exists = _existing(reach)

    def jobs(call: Call) -> Jobs:
        return Jobs(tuple(job_row(status) for status in reach.reader(call.caller).jobs()))

    def events(call: Call) -> Events:
        return Events(service.events(call.values.get("job"), **_page(call)))

    def documents(call: Call) -> Documents:
        known = service.job(call.values["job"]).submission
        return Documents(known.job_document, known.policy_document)

    def logs(call: Call) -> LogPiece:
        values = call.values
        return service.logs(values["job"], values["node"], values["after"])

    def decisions(call: Call) -> Decisions:
        job, limit = call.values.get("job"), call.values["limit"]
        return Decisions(reach.reader(call.caller).decisions(job, limit))

    def decision(call: Call) -> DecisionRow:
        return reach.reader(call.caller).decision(call.values["decision"])

    read = Scope.READ
    return (
        Operation(
            "listJobs", "GET", "/v1/jobs", read, "List all jobs.", Jobs,
            jobs, by_tenants=True,
        ),
        Operation(
            "showJob", "GET", "/v1/jobs/{job}", read, "Show one job.", JobDetail,
            lambda call: job_detail(service.job(call.values["job"])), (NAME,), exists=exists,
            by_tenants=True,
        ),
        Operation(
            "jobDocuments", "GET", "/v1/jobs/{job}/documents", Scope.SUBMIT,
            "Get the texts that a job was handed in with.", Documents, documents, (NAME,),
            exists=exists, by_tenants=True,
        ),
        Operation(
            "jobEvents", "GET", "/v1/jobs/{job}/events", read, "List a job's events.", Events,
            events, (NAME, AFTER, most(1000)), exists=exists, by_tenants=True,
        ),
        Operation(
            "jobDecisions", "GET", "/v1/jobs/{job}/decisions", read, "List a job's decisions.",
            Decisions, decisions, (NAME, most(100)), exists=exists, by_tenants=True,
        ),
        Operation(
            "jobLogs", "GET", "/v1/jobs/{job}/logs", read, "Read a node's log.", LogPiece, logs,
            (NAME, NODE, BYTE), exists=exists, refusal=404, by_tenants=True,
        ),
        Operation(
            "events", "GET", "/v1/events", read, "List the events of all jobs.", Events, events,
            (AFTER, most(1000)),
        ),
        Operation(
            "decisions", "GET", "/v1/decisions", read, "List the last decision of each job.",
            Decisions, decisions, (most(100),), by_tenants=True,
        ),
        Operation(
            "decision", "GET", "/v1/decisions/{decision}", read, "Tell why a decision was made.",
            DecisionRow, decision, (in_path("decision", ID, "the decision's id"),), refusal=404,
            by_tenants=True,
        ),
    )  # fmt: skip


def _handing_in(reach: Reach) -> Operation:
    service = reach.service

    def seen(call: Call) -> Submission:
        body: SubmitBody = call.body
        folders = reach.folders_for(call.caller)
        submission = service.read(
            body.job,
            body.policy,
            workdir=body.workdir or str(folders[0]),
            who=call.caller.name,
            priority=body.priority,
        )
        if not call.caller.sees(submission.tenant):
            raise RefusedError(
                403,
                f"token {call.caller.name!r} may not hand in a job of tenant {submission.tenant!r}",
                hint=f"name tenant: {call.caller.tenant} in the job file",
            )
        job = service.admitted(submission).job
        if not call.caller.local:
            check_folders(job, folders)
        return submission

    def submit(call: Call) -> Taken:
        submission = seen(call)
        try:
            verdict = service.verdict(submission)
        except InfeasibleError as error:
            if not call.body.anyway:
                raise
            verdict = Verdict(False, error.message)
        return taken(service.take(submission), verdict)

    return Operation(
        "submitJob", "POST", "/v1/jobs", Scope.SUBMIT, "Hand in a job.", Taken, submit,
        body=SubmitBody, status=201, check=seen, refusal=409, by_tenants=True,
    )  # fmt: skip


def _steering(reach: Reach) -> tuple[Operation, ...]:
    service, exists = reach.service, _existing(reach)

    def pause(call: Call) -> Submitted:
        return submitted(service.pause(call.values["job"], call.caller.name))

    def resume(call: Call) -> Submitted:
        return submitted(service.resume(call.values["job"], call.caller.name))

    def cancel(call: Call) -> Submitted:
        return submitted(service.cancel(call.values["job"], call.caller.name))

    def reprioritize(call: Call) -> Submitted:
        name, body = call.values["job"], call.body
        return submitted(service.reprioritize(name, body.priority, call.caller.name))

    told = Scope.SUBMIT
    return (
        Operation(
            "pauseJob", "POST", "/v1/jobs/{job}/pause", told,
            "Save, give the nodes back, and keep the job for later.", Submitted, pause, (NAME,),
            exists=exists, refusal=409, by_tenants=True,
        ),
        Operation(
            "resumeJob", "POST", "/v1/jobs/{job}/resume", told,
            "Go on with a job that was paused, or that a guard stopped.", Submitted, resume,
            (NAME,), exists=exists, refusal=409, by_tenants=True,
        ),
        Operation(
            "cancelJob", "POST", "/v1/jobs/{job}/cancel", told,
            "Save, give the nodes back, and never run the job again.", Submitted, cancel, (NAME,),
            exists=exists, refusal=409, by_tenants=True,
        ),
        Operation(
            "reprioritizeJob", "PUT", "/v1/jobs/{job}/priority", told,
            "Serve a job before or after others.", Submitted, reprioritize, (NAME,),
            PriorityBody, exists=exists, refusal=409, by_tenants=True,
        ),
    )  # fmt: skip


def _page(call: Call) -> dict[str, int]:
    return {"after": call.values["after"], "limit": call.values["limit"]}
