"""What a job has now, as a wish: what is decided where nothing better is known."""

from __future__ import annotations

from collections import Counter

from costopt.domain.view import JobView, Target


def keep_current(job_view: JobView) -> tuple[Target, ...]:
    """A target for each pool in which it has nodes."""
    there = Counter(node.pool for node in job_view.nodes)
    return tuple(Target(pool, nodes) for pool, nodes in there.items())
