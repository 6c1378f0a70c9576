"""The ends of an array's tasks, as events."""

from __future__ import annotations

from costopt.domain.events import Event, TaskEnded
from costopt.domain.job import Job
from costopt.domain.runtime import Runtime
from costopt.domain.text import untrusted_text
from costopt.ledger.job_record import JobRecord


def task_events(job: Job, record: JobRecord, runtime: Runtime) -> list[Event]:
    """Return an event for each task that ended and is not in the ledger. Raises StoreError."""
    array = job.array
    if array is None:
        return []
    return [
        TaskEnded(
            at=task.ended_at,
            job=job.name,
            task=task.task,
            outcome=task.outcome,
            starts=task.starts,
            node_id=task.node_id,
            took_s=task.took_s,
            parameters=tuple(array.parameters(task.task).items()),
            figures=tuple((untrusted_text(name), value) for name, value in task.figures),
            message=untrusted_text(task.message),
        )
        for task in runtime.settled_tasks(job)
        if task.task not in record.ended_tasks
    ]
