"""The entry point ``costopt``: its commands, imported on use, and `completion` and `schema`."""

from __future__ import annotations

import json

import click

from costopt import __version__
from costopt.cli.config import defaults_for, read_config
from costopt.cli.errors import CliContext, reserve_stdout
from costopt.cli.groups import CommandEntry, LazyGroup

SECTIONS = {
    "Decide": {
        "init": CommandEntry("costopt.cli.init", "init", "Write a job file to start from."),
        "plan": CommandEntry("costopt.cli.plan", "plan", "Choose pools, nodes and hours for jobs."),
        "what-if": CommandEntry(
            "costopt.cli.plan", "what_if", "Compare policies, deadlines and capacity types."
        ),
        "backtest": CommandEntry(
            "costopt.cli.backtest", "backtest", "Try policies on a recorded market."
        ),
        "diff": CommandEntry(
            "costopt.cli.diff", "diff", "Compare costs before and after a change of job files."
        ),
        "calibrate": CommandEntry(
            "costopt.cli.calibrate",
            "calibrate",
            "Measure a job's speed and write it into its file.",
        ),
        "validate": CommandEntry(
            "costopt.cli.validate", "validate", "Check job, policy and account files."
        ),
    },
    "Run": {
        "run": CommandEntry("costopt.cli.run", "run", "Run a job to completion."),
        "status": CommandEntry("costopt.cli.status", "status", "Show progress and costs of jobs."),
        "logs": CommandEntry(
            "costopt.cli.logs", "logs", "Print the log of a node, or of an array's task."
        ),
        "explain": CommandEntry("costopt.cli.explain", "explain", "Show why a decision was made."),
        "events": CommandEntry("costopt.cli.ledger", "events", "List the events in the ledger."),
        "report": CommandEntry(
            "costopt.cli.ledger", "report", "Show what a job did and what it cost."
        ),
        "export": CommandEntry(
            "costopt.cli.export", "export", "Export the ledger as a bill or for other programs."
        ),
        "checkpoints": CommandEntry(
            "costopt.cli.checkpoints",
            "checkpoints",
            "List, verify, move and prune checkpoints, or roll back.",
        ),
        "exec": CommandEntry(
            "costopt.cli.exec",
            "exec_",
            "Run a command on a living node of a job, and print its output.",
        ),
    },
    "Daemon": {
        "submit": CommandEntry("costopt.cli.jobs", "submit", "Submit a job to the daemon."),
        "pause": CommandEntry(
            "costopt.cli.jobs", "pause", "Checkpoint a job, release its nodes, keep it for later."
        ),
        "resume": CommandEntry("costopt.cli.jobs", "resume", "Resume a paused or stopped job."),
        "cancel": CommandEntry(
            "costopt.cli.jobs", "cancel", "Checkpoint a job, release its nodes, never run it again."
        ),
        "reprioritize": CommandEntry(
            "costopt.cli.jobs", "reprioritize", "Serve a job before or after others."
        ),
        "stop": CommandEntry(
            "costopt.cli.stop",
            "stop",
            "Checkpoint all jobs and release their nodes.",
        ),
        "daemon": CommandEntry(
            "costopt.cli.daemon", "daemon", "Run submitted jobs, for months; control a daemon."
        ),
    },
    "Data": {
        "catalog": CommandEntry(
            "costopt.cli.catalog", "catalog", "List GPU instance types and regions."
        ),
        "market": CommandEntry(
            "costopt.cli.market", "market", "Generate, record, import and show market histories."
        ),
        "carbon": CommandEntry(
            "costopt.cli.carbon",
            "carbon",
            "Import and show carbon histories; ask for live intensities.",
        ),
        "fleet": CommandEntry(
            "costopt.cli.fleet", "fleet", "Replay many jobs on a cluster that they share."
        ),
    },
    "Set up": {
        "setup": CommandEntry(
            "costopt.cli.setup",
            "setup",
            "Create what an account with PROVIDER needs, or remove it.",
        ),
        "doctor": CommandEntry(
            "costopt.cli.doctor", "doctor", "Check this installation, or the account with PROVIDER."
        ),
        "reconcile": CommandEntry(
            "costopt.cli.reconcile", "reconcile", "List orphaned nodes and volumes."
        ),
        "completion": CommandEntry(
            "costopt.cli.main", "completion", "Print shell completion code."
        ),
        "schema": CommandEntry(
            "costopt.cli.main", "schema", "Print the JSON Schema of a file format."
        ),
    },
}
MOVED = {
    "cost": "plan",
    "price": "plan",
    "estimate": "plan",
    "list": "status",
    "show": "status JOB",
    "tasks": "status JOB --tasks",
    "submit-from": "submit --from",
    "bill": "export bill",
    "workload": "fleet workloads",
    "mode": "daemon mode",
    "halt": "daemon halt",
    "unhalt": "daemon unhalt",
    "approve": "daemon approve",
    "token": "daemon token",
    "restore": "daemon restore",
    "slurm": "daemon slurm",
}


@click.group(
    name="costopt",
    cls=LazyGroup,
    sections=SECTIONS,
    moved=MOVED,
    context_settings={
        "auto_envvar_prefix": "COSTOPT",
        "help_option_names": ["-h", "--help"],
        "show_default": True,
    },
)
@click.version_option(__version__, prog_name="costopt")
@click.option("--debug", is_flag=True, help="Show the traceback of an unexpected error.")
@click.option(
    "--config",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Read options from this file instead of costopt.toml.",
)
@click.pass_context
def cli(context: click.Context, debug: bool, config: str | None) -> None:
    """Finish training jobs by their deadline at the lowest dollars and kilowatt-hours.

    Every option may also be set as an environment variable, such as COSTOPT_PLAN_POLICY for
    plan --policy, or in costopt.toml, here or as ~/.config/costopt/config.toml: flags win over
    the environment, the environment over the file.

    Exit codes: 0 done, 1 error, 2 wrong usage, job or policy, 3 infeasible, 4 a guard tripped,
    5 stale data.
    """
    context.ensure_object(CliContext).debug = debug
    name = context.invoked_subcommand
    command = cli.get_command(context, name) if name else None
    if name and command:
        context.default_map = {name: defaults_for(name, command, read_config(config))}


def main() -> None:
    """Run the command line and exit with its code."""
    reserve_stdout()
    cli(prog_name="costopt")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print shell completion code.

    \b
    bash: eval "$(costopt completion bash)"        in ~/.bashrc
    zsh:  eval "$(costopt completion zsh)"         in ~/.zshrc
    fish: costopt completion fish > ~/.config/fish/completions/costopt.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = context.find_root().command
    click.echo(kind(root, {}, "costopt", "_COSTOPT_COMPLETE").source())


@click.command()
@click.argument("kind", type=click.Choice(["job", "policy", "account", "cluster"]))
def schema(kind: str) -> None:
    """Print the JSON Schema of a file format.

    Editors use it to complete and check the files as they are written.
    """
    from costopt.spec import account_schema, cluster_schema, job_schema, policy_schema

    schemas = {
        "job": job_schema,
        "policy": policy_schema,
        "account": account_schema,
        "cluster": cluster_schema,
    }
    click.echo(json.dumps(schemas[kind](), indent=2, ensure_ascii=False))
