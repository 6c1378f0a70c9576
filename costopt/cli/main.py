"""The entry point: ``costopt``."""

from __future__ import annotations

import click

from costopt import __version__
from costopt.cli.config import defaults_for, read_config
from costopt.cli.group import CommandEntry, LazyGroup
from costopt.cli.settings import CliContext

COMMANDS = {
    "plan": CommandEntry("costopt.cli.plan", "plan", "Choose pools, nodes and hours for a job."),
    "what-if": CommandEntry(
        "costopt.cli.what_if", "what_if", "Compare policies, deadlines and terms."
    ),
    "run": CommandEntry("costopt.cli.run", "run", "Run a job until it is done."),
    "backtest": CommandEntry(
        "costopt.cli.backtest", "backtest", "Try policies on a recorded market."
    ),
    "daemon": CommandEntry(
        "costopt.cli.daemon", "daemon", "Run jobs that come and go, for months."
    ),
    "status": CommandEntry(
        "costopt.cli.status", "status", "Show how far jobs are and what they cost."
    ),
    "events": CommandEntry("costopt.cli.events", "events", "List the facts that the ledger holds."),
    "explain": CommandEntry("costopt.cli.explain", "explain", "Tell why a decision was made."),
    "report": CommandEntry(
        "costopt.cli.report", "report", "Write a job's report as one HTML file."
    ),
    "checkpoints": CommandEntry(
        "costopt.cli.checkpoints",
        "checkpoints",
        "List, verify and prune checkpoints, go back, branch off.",
    ),
    "submit": CommandEntry("costopt.cli.submit", "submit", "Hand a job to a daemon."),
    "submit-from": CommandEntry(
        "costopt.cli.submit_from", "submit_from", "Hand a daemon the jobs of a deployment."
    ),
    "list": CommandEntry("costopt.cli.jobs", "list_", "List a daemon's jobs."),
    "show": CommandEntry("costopt.cli.jobs", "show", "Show one job of a daemon."),
    "logs": CommandEntry("costopt.cli.logs", "logs", "Print a node's log."),
    "pause": CommandEntry(
        "costopt.cli.job_control",
        "pause",
        "Save a job, give its nodes back, keep it for later.",
    ),
    "resume": CommandEntry(
        "costopt.cli.job_control",
        "resume",
        "Go on with a job that was paused or stopped.",
    ),
    "cancel": CommandEntry(
        "costopt.cli.job_control",
        "cancel",
        "Save a job, give its nodes back, never run it again.",
    ),
    "reprioritize": CommandEntry(
        "costopt.cli.job_control", "reprioritize", "Serve a job before or after others."
    ),
    "approve": CommandEntry(
        "costopt.cli.daemon_control", "approve", "Let a daemon do what it proposed."
    ),
    "halt": CommandEntry(
        "costopt.cli.daemon_control", "halt", "Stop all launches of a daemon at once."
    ),
    "unhalt": CommandEntry(
        "costopt.cli.daemon_control", "unhalt", "Let a halted daemon launch again."
    ),
    "mode": CommandEntry(
        "costopt.cli.daemon_control", "mode", "Show or set how far a daemon goes by itself."
    ),
    "token": CommandEntry(
        "costopt.cli.tokens", "token", "Make, list and revoke tokens for a daemon."
    ),
    "restore": CommandEntry("costopt.cli.restore", "restore", "Restore a daemon's corrupt files."),
    "reconcile": CommandEntry(
        "costopt.cli.reconcile", "reconcile", "List what nobody answers for."
    ),
    "catalog": CommandEntry(
        "costopt.cli.catalog", "catalog", "List GPU instance types and regions."
    ),
    "market": CommandEntry(
        "costopt.cli.market", "market", "Generate, record, import and show market histories."
    ),
    "carbon": CommandEntry("costopt.cli.carbon", "carbon", "Import and show carbon histories."),
    "validate": CommandEntry(
        "costopt.cli.validate", "validate", "Check job, policy and account files."
    ),
    "schema": CommandEntry(
        "costopt.cli.schema", "schema", "Print the JSON Schema of a file format."
    ),
    "doctor": CommandEntry(
        "costopt.cli.doctor", "doctor", "Check this installation, or the account with PROVIDER."
    ),
    "completion": CommandEntry(
        "costopt.cli.completion", "completion", "Print shell completion code."
    ),
}


@click.group(
    name="costopt",
    cls=LazyGroup,
    entries=COMMANDS,
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
    help="Read options from this file in place of costopt.toml.",
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
    cli(prog_name="costopt")
