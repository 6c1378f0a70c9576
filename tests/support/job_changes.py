"""A git repository with a job, and changes of it, for `costopt diff`."""

from __future__ import annotations

import subprocess
from pathlib import Path

JOB = """\
kind: job
name: {name}
work: {{amount: {amount}, unit: tokens}}
deadline: {deadline}
resources: {{gpu_models: [A100, H100], min_gpus: 8, max_gpus: 16, max_nodes: 2}}
throughput: {{flops_per_unit: 4.8e+10, mfu: 0.38}}
checkpoint: {{uri: checkpoints, size_gib: 96, save: 90s, restore: 3m}}
startup: 6m
"""
POLICY = """\
kind: policy
name: ours
objective: {{minimize: cost}}
risk: {{on_time_probability: {probability}}}
"""


def job(name: str = "small", amount: str = "1.0e+9", deadline: str = "72h") -> str:
    """A job file; 1.0e+9 tokens take half a day on eight H100."""
    return JOB.format(name=name, amount=amount, deadline=deadline)


class Repository:
    """A working folder with one commit on the branch main: ``jobs/a.yaml``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "--quiet", "--initial-branch", "main")
        self.git("config", "user.email", "tests@localhost")
        self.git("config", "user.name", "tests")
        self.write("jobs/a.yaml", job())
        self.commit()

    def write(self, name: str, text: str) -> Path:
        """Write a file of the working folder."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def commit(self) -> str:
        """Commit everything; return the commit."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "change")
        return self.git("rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        """What git prints."""
        done = subprocess.run(
            ["git", *arguments], cwd=self.root, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()
