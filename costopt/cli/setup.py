"""`costopt setup`: creates what an account with a cloud needs, and removes it again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from costopt.cli.options import account_option, output_option, print_table
from costopt.cli.provider_account import ACCOUNT_FILE, connected_provider
from costopt.domain.account import UNLIMITED
from costopt.planning.request import load_account
from costopt.provider.base import Capability
from costopt.provider.setup import ResourceState
from costopt.render.table import Column, OutputFormat, Table

if TYPE_CHECKING:
    from costopt.controller.account_setup import AccountFileDraft, FoundStep
    from costopt.provider.base import Provider
    from costopt.provider.setup import AccountSetup, SetupStep

Row = dict[str, Any]
COLUMNS = (
    Column("kind", "Resource"),
    Column("name", "Name"),
    Column("place", "Region", rank=1),
    Column("state", "Found", rank=2),
    Column("action", "Action"),
    Column("policy", "Policy", detail=True),
)
CREATIONS = {ResourceState.MISSING: "create", ResourceState.INCOMPLETE: "complete"}
REMOVALS = {ResourceState.READY: "remove", ResourceState.INCOMPLETE: "remove"}
PAST = {"create": "created", "complete": "completed", "remove": "removed", "write": "written"}


@click.command()
@click.argument("provider", metavar="aws|gcp")
@click.option("--regions", metavar="A,B,…",
              help="Regions to rent nodes in; the store is in the first. Default: those of the "
              "account file, else that which the provider's own tools use.")  # fmt: skip
@click.option("--store", metavar="URI",
              help="Where nodes and controller exchange code, messages and checkpoints; default: "
              "that of the account file, else a new bucket.")  # fmt: skip
@account_option
@click.option(
    "--apply", is_flag=True, help="Create or remove it. Without this flag, only list what would be."
)
@click.option("--remove", is_flag=True, help="Remove what setup created, and nothing else.")
@click.option(
    "--delete-checkpoints",
    is_flag=True,
    help="With --remove: delete the bucket with all that it holds.",
)
@output_option
def setup(
    provider: str,
    regions: str | None,
    store: str | None,
    account: str | None,
    apply: bool,
    remove: bool,
    delete_checkpoints: bool,
    output: str,
) -> None:
    """Create what an account with PROVIDER needs, or remove it.

    A bucket, roles of the controller and of nodes with the permissions that `costopt doctor
    PROVIDER --iam-policy` prints, a queue of interruption notices, the rules by which nodes reach
    each other, and the account file: FILE or account.yaml, unless it exists. All of it carries the
    owner's tag. Without --apply, this prints what it would do, with the policies. Run it again at
    any time: it does only what remains to be done.

    With --remove, what setup created for this owner is removed; a bucket that is not empty, only
    with --delete-checkpoints. Nothing is removed while nodes run.
    """
    if delete_checkpoints and not remove:
        raise click.UsageError("--delete-checkpoints goes with --remove")
    file = Path(account or ACCOUNT_FILE)
    known = load_account(str(file)) if file.exists() else UNLIMITED
    if store is not None and known.store not in (None, store):
        raise click.UsageError(f"{file} names another store: {known.store}")
    with connected_provider(provider, regions, known, Capability.ACCOUNT_SETUP) as cloud:
        work = cloud.account_setup(known.owner, store or known.store)
        task = SetupTask(provider, cloud, work, known.owner, file)
        rows = task.remove(apply, delete_checkpoints) if remove else task.create(apply)
        title = f"{'Removal' if remove else 'Setup'} of {known.owner} with {provider}"
        print_table(Table("costopt.setup/1", title, COLUMNS, rows), output)
        if not remove and output == OutputFormat.TABLE and not apply:
            _print_policies(work.steps)
    if not apply:
        click.echo("nothing was changed: add --apply to do it", err=True)
    elif not remove:
        task.print_next()


@dataclass(frozen=True, slots=True)
class SetupTask:
    """One call of the command. Its methods return rows of the table, and report what they do."""

    provider: str
    cloud: Provider
    setup: AccountSetup
    owner: str
    account_file: Path

    def create(self, apply: bool) -> list[Row]:
        """Create what is missing, and the account file. Raise CostoptError."""
        from costopt.controller.account_setup import create, look, raise_if_foreign

        found = look(self.setup)
        raise_if_foreign(found)
        for each in create(found) if apply else ():
            _report(each, CREATIONS)
        exists = self.account_file.exists()
        rows = [_row(each, CREATIONS, apply) for each in found]
        rows.append(self._file_row("found" if exists else "missing", "" if exists else "write"))
        if apply:
            self._draft().write()
            rows[-1]["action"] = PAST.get(rows[-1]["action"], "")
        lacking = self._draft().to_add() if exists else ""
        if lacking:
            click.echo(f"note: {self.account_file} stays as it is; add to it:\n{lacking}", err=True)
        return rows

    def remove(self, apply: bool, lose: bool) -> list[Row]:
        """Remove what setup made, and an account file that holds nothing else.

        Raise CostoptError.
        """
        from costopt.controller.account_setup import look, raise_if_in_use, remove

        found = look(self.setup)
        nodes = [n.node_id for n in self.cloud.nodes(self.owner) if n.state.is_alive]
        raise_if_in_use(found, nodes, lose=lose)
        rows = [_row(each, REMOVALS, apply) for each in reversed(found)]
        if self.account_file.exists():
            is_ours = self._draft().is_only_ours()
            rows.append(self._file_row("found", "remove" if is_ours else ""))
        for each in remove(found) if apply else ():
            _report(each, REMOVALS)
        if apply and rows[-1]["action"] == "remove":
            self.account_file.unlink(missing_ok=True)
            rows[-1]["action"] = "removed"
        return rows

    def print_next(self) -> None:
        """Name the commands that follow."""
        named = "" if self.account_file == ACCOUNT_FILE else f" --account {self.account_file}"
        check, run = f"costopt doctor {self.provider}", "costopt run job.yaml --apply"
        click.echo(f"next: {check}{named}, then {run}{named}", err=True)

    def _draft(self) -> AccountFileDraft:
        from costopt.controller.account_setup import AccountFileDraft

        return AccountFileDraft(
            self.account_file, self.provider, self.owner, self.setup.store, self.setup.options()
        )

    def _file_row(self, state: str, action: str) -> Row:
        return {
            "kind": "account file",
            "name": str(self.account_file),
            "place": "",
            "state": state,
            "action": action,
            "policy": None,
        }


def _row(each: FoundStep, actions: Mapping[ResourceState, str], apply: bool) -> Row:
    action = actions.get(each.state, "use" if each.is_used else "")
    return {
        "kind": each.step.kind,
        "name": each.step.name,
        "place": each.step.place,
        "state": each.state,
        "action": PAST.get(action, action) if apply else action,
        "policy": each.step.policy(),
    }


def _report(each: FoundStep, actions: Mapping[ResourceState, str]) -> None:
    if each.state in actions:
        click.echo(f"{PAST[actions[each.state]]}: {each.step.kind} {each.step.name}", err=True)


def _print_policies(steps: Sequence[SetupStep]) -> None:
    for step in steps:
        policy = step.policy()
        if policy is not None:
            click.echo(f"\nPolicy of {step.kind} {step.name}:\n{json.dumps(policy, indent=2)}")
