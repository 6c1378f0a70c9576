"""The entry point ``costopt``: its commands, imported on use, and `completion` and `schema`."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from costopt import __version__
from costopt.cli.config import FLAG_ONLY, defaults_for, read_config
from costopt.cli.errors import CliContext, exit_on_closed_pipe, reserve_stdout, run_command


class CommandEntry(NamedTuple):
    """A command's module, and its one-line help, so that a list needs no import."""

    module: str
    attribute: str
    help: str


class LazyGroup(click.Group):
    """A group whose commands stay unimported until one is invoked."""

    def __init__(self, *args: Any, entries: Mapping[str, CommandEntry], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of use, not of the alphabet."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command. Options that spend money are taken from the command line alone."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry.module), entry.attribute)
        assert isinstance(command, click.Command)
        for option in command.params:
            if isinstance(option, click.Option) and option.name in FLAG_ONLY:
                option.allow_from_autoenv = False
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command named first. Raise UsageError with the nearest names."""
        if args and args[0] not in self.entries and not args[0].startswith("-"):
            from costopt.spec.fields import did_you_mean

            near = did_you_mean(args[0], self.entries)
            ctx.fail(f"there is no command {args[0]!r}{near}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the list of commands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.entries.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run; a reader that closed the pipe early is not an error."""
        with exit_on_closed_pipe():
            return super().invoke(ctx)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run and, unless ``standalone_mode`` is False, print errors in costopt's form and exit."""
        settings = extra.setdefault("obj", CliContext())

        def run() -> Any:
            return super(LazyGroup, self).main(
                args=args,
                prog_name=prog_name or "costopt",
                complete_var=complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )

        if not standalone_mode:
            return run()
        sys.exit(run_command(run, settings))


COMMANDS = {
    "init": CommandEntry("costopt.cli.init", "init", "Write a commented job file to start from."),
    "plan": CommandEntry("costopt.cli.plan", "plan", "Choose pools, nodes and hours for jobs."),
    "what-if": CommandEntry(
        "costopt.cli.plan", "what_if", "Compare policies, deadlines and capacity types."
    ),
    "diff": CommandEntry(
        "costopt.cli.diff", "diff", "Compare costs before and after a change of job files."
    ),
    "run": CommandEntry("costopt.cli.run", "run", "Run a job to completion."),
    "calibrate": CommandEntry(
        "costopt.cli.calibrate", "calibrate", "Measure a job's speed and write it into its file."
    ),
    "backtest": CommandEntry(
        "costopt.cli.backtest", "backtest", "Try policies on a recorded market."
    ),
    "daemon": CommandEntry("costopt.cli.daemon", "daemon", "Run submitted jobs, for months."),
    "status": CommandEntry("costopt.cli.ledger", "status", "Show progress and costs of jobs."),
    "events": CommandEntry("costopt.cli.ledger", "events", "List the events in the ledger."),
    "tasks": CommandEntry(
        "costopt.cli.ledger", "tasks", "List an array's tasks with their results."
    ),
    "explain": CommandEntry("costopt.cli.explain", "explain", "Show why a decision was made."),
    "report": CommandEntry(
        "costopt.cli.ledger", "report", "Write a job's report as one HTML file."
    ),
    "bill": CommandEntry(
        "costopt.cli.bill", "bill", "Show a month's bill with commitments and credits."
    ),
    "export": CommandEntry("costopt.cli.export", "export", "Export the ledger for other programs."),
    "checkpoints": CommandEntry(
        "costopt.cli.checkpoints",
        "checkpoints",
        "List, verify, move and prune checkpoints, or roll back.",
    ),
    "submit": CommandEntry("costopt.cli.jobs", "submit", "Submit a job to the daemon."),
    "submit-from": CommandEntry(
        "costopt.cli.jobs", "submit_from", "Submit the jobs of a deployment to the daemon."
    ),
    "list": CommandEntry("costopt.cli.job_views", "list_", "List a daemon's jobs."),
    "show": CommandEntry("costopt.cli.job_views", "show", "Show one job of a daemon."),
    "logs": CommandEntry(
        "costopt.cli.logs", "logs", "Print the log of a node, or of an array's task."
    ),
    "exec": CommandEntry(
        "costopt.cli.exec",
        "exec_",
        "Run a command on a living node of a job, and print its output.",
    ),
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
    "approve": CommandEntry(
        "costopt.cli.operate", "approve", "Approve actions that a daemon proposed."
    ),
    "halt": CommandEntry("costopt.cli.operate", "halt", "Stop all launches of a daemon at once."),
    "unhalt": CommandEntry(
        "costopt.cli.operate", "unhalt", "Allow a halted daemon to launch again."
    ),
    "mode": CommandEntry("costopt.cli.operate", "mode", "Show or set the daemon's mode."),
    "token": CommandEntry(
        "costopt.cli.operate", "token", "Create, list and revoke tokens for a daemon."
    ),
    "restore": CommandEntry("costopt.cli.daemon", "restore", "Restore a daemon's corrupt files."),
    "reconcile": CommandEntry(
        "costopt.cli.reconcile", "reconcile", "List orphaned nodes and volumes."
    ),
    "catalog": CommandEntry(
        "costopt.cli.catalog", "catalog", "List GPU instance types and regions."
    ),
    "market": CommandEntry(
        "costopt.cli.market", "market", "Generate, record, import and show market histories."
    ),
    "workload": CommandEntry(
        "costopt.cli.workload", "workload", "Import and show records of a cluster's jobs."
    ),
    "fleet": CommandEntry(
        "costopt.cli.fleet", "fleet", "Replay many jobs on a cluster that they share."
    ),
    "slurm": CommandEntry(
        "costopt.cli.slurm", "slurm", "Power the cloud nodes of a Slurm cluster up and down."
    ),
    "carbon": CommandEntry(
        "costopt.cli.carbon",
        "carbon",
        "Import and show carbon histories; ask for live intensities.",
    ),
    "validate": CommandEntry(
        "costopt.cli.validate", "validate", "Check job, policy and account files."
    ),
    "schema": CommandEntry("costopt.cli.main", "schema", "Print the JSON Schema of a file format."),
    "doctor": CommandEntry(
        "costopt.cli.doctor", "doctor", "Check this installation, or the account with PROVIDER."
    ),
    "completion": CommandEntry("costopt.cli.main", "completion", "Print shell completion code."),
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
