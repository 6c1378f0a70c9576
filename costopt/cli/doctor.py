"""costopt doctor"""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata, util
from pathlib import Path

import click

from costopt import __version__
from costopt.cli.doctor_packages import REINSTALL, core_checks, extra_checks, version_of
from costopt.cli.options import account_option
from costopt.cli.output import output_option, print_table
from costopt.cli.state import state_dir_option
from costopt.domain.distribution import DISTRIBUTION
from costopt.domain.errors import CostoptError
from costopt.provider.base import Check, CheckStatus
from costopt.render.table import Column, Table

MIN_PYTHON = (3, 11)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@click.command()
@click.argument("provider", required=False)
@click.option("--regions", metavar="A,B,…",
              help="Regions of PROVIDER; default: those of the account file.")  # fmt: skip
@account_option
@click.option("--iam-policy", is_flag=True,
              help="Print the least that PROVIDER's roles need, as JSON; ask nothing.")  # fmt: skip
@state_dir_option
@output_option
@click.pass_context
def doctor(
    context: click.Context,
    provider: str | None,
    regions: str | None,
    account: str | None,
    iam_policy: bool,
    state_dir: Path,
    output: str,
) -> None:
    """Check this installation, or the account with PROVIDER.

    What is missing may not be needed; the hint says how to get it. Of an account: credentials,
    regions, permissions, quotas, images and the store; nothing is launched or changed. Exits with
    1 where something essential is broken.
    """
    if provider is None:
        if regions or iam_policy:
            raise click.UsageError("--regions and --iam-policy are about a provider: name one")
        checks = list(_checks(state_dir))
    else:
        from costopt.cli.doctor_account import access_policies, account_checks

        if iam_policy:
            click.echo(access_policies(provider, regions, account))
            return
        checks = account_checks(provider, regions, account)
    columns = (
        Column("check", "Check"),
        Column("verdict", ""),
        Column("detail", "Found"),
        Column("hint", "What to do"),
    )
    rows = [
        {"check": c.name, "verdict": c.verdict, "detail": c.detail, "hint": c.hint or ""}
        for c in checks
    ]
    print_table(Table("costopt.doctor/1", "costopt doctor", columns, rows), output)
    context.exit(1 if any(check.verdict is CheckStatus.BROKEN for check in checks) else 0)


def _checks(state_dir: Path) -> Iterator[Check]:
    yield Check("costopt", CheckStatus.OK, __version__)
    yield _python()
    yield from core_checks()
    yield _solver()
    yield _sqlite()
    yield _catalog()
    yield _policies()
    yield _providers()
    yield _state(state_dir)
    yield _clock()
    yield from extra_checks()
    yield _browser()


def _python() -> Check:
    found = platform.python_version()
    if sys.version_info < MIN_PYTHON:
        return Check("Python", CheckStatus.BROKEN, found, "costopt needs Python 3.11 or newer")
    return Check("Python", CheckStatus.OK, f"{found}, {platform.system()} {platform.machine()}")


def _solver() -> Check:
    """HiGHS where highspy is there, else the CBC that PuLP brings."""
    highs = version_of("highspy")
    if highs is not None and util.find_spec("highspy") is not None:
        return Check("solver", CheckStatus.OK, f"HiGHS through highspy {highs}")
    spec = util.find_spec("pulp")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    if folder is not None and any(folder.glob("**/cbc*")):
        return Check(
            "solver", CheckStatus.OK, "CBC of PuLP", "pip install highspy, which is faster"
        )
    return Check("solver", CheckStatus.BROKEN, "none", "pip install highspy")


def _sqlite() -> Check:
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder) / "probe.sqlite")
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        finally:
            connection.close()
    if mode != "wal":
        return Check("SQLite", CheckStatus.BROKEN, f"journal mode {mode}", "WAL does not work here")
    return Check("SQLite", CheckStatus.OK, f"{sqlite3.sqlite_version}, WAL")


def _catalog() -> Check:
    try:
        from costopt.catalog import load_catalog

        known = load_catalog()
        offers, machines = known.offers(), known.instance_types()
    except (CostoptError, OSError, ValueError, KeyError) as error:
        return Check("catalogue", CheckStatus.BROKEN, str(error), REINSTALL)
    seen = [o.price_usd_per_hour.observed_at for o in offers if o.price_usd_per_hour]
    newest = max((when for when in seen if when), default=None)
    age = f", newest price {(datetime.now(UTC) - newest).days} days old" if newest else ""
    return Check(
        "catalogue", CheckStatus.OK, f"{len(machines)} instance types, {len(offers)} offers{age}"
    )


def _policies() -> Check:
    from costopt.spec import bundled_policies

    names = bundled_policies()
    if not names:
        return Check("policies", CheckStatus.BROKEN, "none", REINSTALL)
    return Check("policies", CheckStatus.OK, ", ".join(names))


def _providers() -> Check:
    names = sorted(entry.name for entry in metadata.entry_points(group="costopt.providers"))
    if not names:
        hint = f"pip install {DISTRIBUTION}; from a working tree: pip install -e ."
        return Check("providers", CheckStatus.MISSING, "none", hint)
    return Check("providers", CheckStatus.OK, ", ".join(names))


def _state(state_dir: Path) -> Check:
    """Whether a run could keep its ledger there, without leaving anything behind."""
    place = state_dir
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        hint = "choose another with --state-dir or COSTOPT_STATE_DIR"
        return Check("state folder", CheckStatus.BROKEN, f"{state_dir} is not writable", hint)
    free_gib = shutil.disk_usage(place).free / 2**30
    return Check("state folder", CheckStatus.OK, f"{state_dir}, {free_gib:.1f} GiB free")


def _clock() -> Check:
    """A clock before this code was written is wrong; deadlines and billing rest on it."""
    now, written_at = datetime.now(UTC), Path(__file__).stat().st_mtime
    told = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    if now.timestamp() < written_at - 86400:
        return Check("clock", CheckStatus.BROKEN, told, "set the system's clock")
    return Check("clock", CheckStatus.OK, told)


def _browser() -> Check:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        return Check("browser", CheckStatus.MISSING, "no Chromium", "needed for screenshots only")
    return Check("browser", CheckStatus.OK, found)
