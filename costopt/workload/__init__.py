"""Workloads: recorded jobs of a cluster, their file, and the importers of public traces."""

from costopt.workload.workload import RecordedJob, Workload

__all__ = ["RecordedJob", "Workload"]
