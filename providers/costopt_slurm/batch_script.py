"""The batch script of a gang: one step for each node, which runs the agent.

A launch happens once even where Slurm gets two jobs for it: before a script starts anything it
makes a folder of the launch's name in the shared folder, which only the first can. Each node has a
step of its own, so that one can be ended alone. The script ignores SIGTERM: Slurm sends it to the
steps at a preemption, whose agents save and leave, and the script ends with the last of them. The
user's profile is not read: it may take seconds, or wait for a terminal.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime

from costopt.domain.fleet import LaunchRequest
from costopt.domain.runtime import Payload

REPEATED = 75
"""The exit code of a script whose launch has run before (EX_TEMPFAIL)."""
WARNING_S = 120.0
"""Before the time limit, Slurm sends the steps SIGTERM."""
LOG_TIMEOUT_S = 10
LAUNCHES = "launches"
ENDED = "ended"
"""The file with the instant at which a launch's script ended and, if its job was preempted, a line
that begins with PREEMPTED: the accounts call a job completed whose agents left on the notice."""
PREEMPTED = "PreemptTime="
SCONTROL_TIMEOUT_S = 10
UNUSED_DAYS = 7
"""Days without a write after which a node's folder goes whose launch never recorded its end."""
_REMOVE_OLD_FOLDERS = (
    'for old in "$disk"/costopt-slurm-*; do',
    '  [ -O "$old" ] || continue',
    '  name="${old##*/costopt-slurm-}"',
    f'  if [ -e "${{launch%/*}}/${{name%-*}}/{ENDED}" ]'
    f' || [ -z "$(find "$old" -mtime -{UNUSED_DAYS} -print -quit)" ]; then rm -rf "$old"; fi',
    "done",
)


@dataclass(frozen=True, slots=True)
class NodeCommand:
    """What every node runs. ``python`` has costopt; ``setup`` are lines of shell before it."""

    python: str
    setup: str
    gpus: int
    gres: str
    grace_s: float


def agent_command(payload: Payload, node: NodeCommand) -> str:
    """Return the shell text that a node runs, with the node's number as ``$1``.

    The agent takes the place of the shell: it is the process that Slurm signals.
    """
    options = [
        *("--store", payload.store, "--job", payload.job),
        *("--bundle", payload.bundle.key, "--bundle-sha256", payload.bundle.sha256),
        *("--notices", f"sigterm:{node.grace_s:g}", "--processes", str(node.gpus)),
        *("--logs-s", str(LOG_TIMEOUT_S)),
    ]
    return "\n".join(
        [
            'disk="${SLURM_TMPDIR:-${TMPDIR:-/tmp}}"',
            *_REMOVE_OLD_FOLDERS,
            'place="$disk/costopt-slurm-${launch##*/}-$1"',
            'mkdir -p "$place" || exit 73',
            f"exec {shlex.quote(node.python)} -m costopt.agent {shlex.join(options)} "
            '--node "$SLURM_JOB_ID-$1" --host "$(hostname)" --folder "$place/agent" '
            '--workdir "$place/job" --data-folder "$place/data"',
        ]
    )


def batch_script(
    request: LaunchRequest, node: NodeCommand, command: str, folder: str, programs: str | None
) -> str:
    """Return the script that runs ``command`` on each node. ``folder`` is shared by all nodes."""
    bin_ = "" if programs is None else f"{programs}/"
    scontrol, srun = shlex.quote(f"{bin_}scontrol"), shlex.quote(f"{bin_}srun")
    launch = shlex.quote(f"{launches_folder(folder)}/{request.key}")
    lines = [
        "#!/bin/bash",
        f"# costopt: launch {request.key}",
        "unset SLURM_TIME_FORMAT LC_ALL",
        "export HOME=~",
        "trap '' TERM",
        f"export launch={launch}",
        'mkdir -p "${launch%/*}" && exec >> "$launch.log" 2>&1',
        'if ! mkdir "$launch"; then',
        '  [ -d "$launch" ] || exit 73',
        f'  echo "costopt: this launch has run before" >&2; exit {REPEATED}',
        "fi",
        'echo "$SLURM_JOB_ID" > "$launch/job"',
        node.setup,
        f"command={shlex.quote(command)}",
        "number=0",
        f'for node in $({scontrol} show hostnames "$SLURM_JOB_NODELIST"); do',
        f'  {srun} --nodes=1 --ntasks=1 --nodelist="$node" '
        '--job-name="node-$number" --mem=0 --cpu-bind=none '
        f"--gres={shlex.quote(node.gres)} --kill-on-bad-exit=0 --wait=0 "
        '/bin/bash -c "$command" costopt "$number" &',
        "  number=$((number + 1))",
        "done",
        "wait",
        f'date +%s > "$launch/{ENDED}"',
        f'timeout {SCONTROL_TIMEOUT_S} {scontrol} --oneliner show job "$SLURM_JOB_ID" 2> /dev/null'
        f' | grep -o "{PREEMPTED}[0-9][^ ]*" >> "$launch/{ENDED}"',
        "exit 0",
    ]
    return "\n".join(line for line in lines if line) + "\n"


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """What a batch script recorded of its end."""

    at: datetime
    preempted: bool

    @classmethod
    def parse(cls, text: str | None) -> ScriptEnd | None:
        """Return the record in a file, None where there is none."""
        lines = (text or "").splitlines()
        if not lines or not lines[0].isdigit():
            return None
        at = datetime.fromtimestamp(int(lines[0]), UTC)
        return cls(at, any(line.startswith(PREEMPTED) for line in lines[1:]))


def launches_folder(folder: str) -> str:
    """Return where scripts record that they ran, and write their output."""
    return f"{folder.rstrip('/')}/{LAUNCHES}"


def step_name(number: int) -> str:
    """Return the name of a node's step."""
    return f"node-{number}"
