"""`costopt doctor`: checks the installation's packages and files, or one provider's account."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata, util
from pathlib import Path

import click

from costopt import __version__
from costopt.cli.doctor_store import store_checks
from costopt.cli.options import account_option, output_option, print_table, state_dir_option
from costopt.cli.provider_account import connected_provider, nearest_account
from costopt.domain.errors import DISTRIBUTION, FOREIGN, CostoptError, install_hint
from costopt.planning.request import load_account
from costopt.provider.base import Capability, Check, CheckStatus
from costopt.render.table import Column, Table

MIN_PYTHON = (3, 11)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@click.command()
@click.argument("provider", required=False)
@click.option("--regions", metavar="A,B,…",
              help="Regions of PROVIDER; default: those of the account file.")  # fmt: skip
@account_option
@click.option("--iam-policy", "--rbac", is_flag=True,
              help="Print the minimal permissions of PROVIDER's roles as JSON; of a cluster, the "
              "roles that are missing.")  # fmt: skip
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
    regions, permissions, quotas, images and the store, in which small objects are written and
    deleted; nothing else is launched or changed. Exits with 1 where something essential is broken.
    """
    if provider is None:
        if regions or iam_policy:
            raise click.UsageError("--regions and --iam-policy are about a provider: name one")
        checks = [*_checks(state_dir), *store_checks(load_account(account))]
    else:
        account = nearest_account(account)
        if iam_policy:
            click.echo(access_policies(provider, regions, account))
            return
        checks = account_checks(provider, regions, account)
    columns = (
        Column("check", "Check"),
        Column("verdict", ""),
        Column("detail", "Found", fold_at=60),
        Column("hint", "What to do", fold_at=40),
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
    yield from adapter_checks()
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
    """Check HiGHS if highspy is installed, otherwise the CBC that PuLP contains."""
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


def adapter_checks() -> Iterator[Check]:
    """Check that the adapter of each provider can be loaded."""
    adapters = sorted(metadata.entry_points(group="costopt.providers"), key=lambda each: each.name)
    if not adapters:
        hint = f"pip install {DISTRIBUTION}; from a working tree: pip install -e ."
        yield Check("providers", CheckStatus.MISSING, "none", hint)
    for adapter in adapters:
        package = adapter.dist.name if adapter.dist else adapter.module
        label, found = f"provider {adapter.name}", f"{adapter.module} of {package}"
        try:
            adapter.load()
        except Exception as error:  # noqa: BLE001 - any package may bring an adapter
            reason = f"{found}: {type(error).__name__}: {error}"
            own = package == DISTRIBUTION
            hint = install_hint(adapter.name) if own else f"reinstall or remove {package}"
            yield Check(label, CheckStatus.MISSING if own else CheckStatus.BROKEN, reason, hint)
        else:
            yield Check(label, CheckStatus.OK, found)


def _state(state_dir: Path) -> Check:
    """Check that a run could keep its ledger there; leave no file behind."""
    from costopt.controller.state_dir import exposure_note

    place = state_dir
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        hint = "choose another with --state-dir or COSTOPT_STATE_DIR"
        return Check("state folder", CheckStatus.BROKEN, f"{state_dir} is not writable", hint)
    free_gib = shutil.disk_usage(place).free / 2**30
    found = f"{state_dir}, {free_gib:.1f} GiB free"
    exposed = exposure_note(state_dir)
    return Check("state folder", CheckStatus.OK, f"{found}; {exposed}" if exposed else found)


def _clock() -> Check:
    """Check the clock: one before this code's date is wrong, and deadlines and billing depend on
    it."""
    now, written_at = datetime.now(UTC), Path(__file__).stat().st_mtime
    time_text = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    if now.timestamp() < written_at - 86400:
        return Check("clock", CheckStatus.BROKEN, time_text, "set the system's clock")
    return Check("clock", CheckStatus.OK, time_text)


def _browser() -> Check:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        return Check("browser", CheckStatus.MISSING, "no Chromium", "needed for screenshots only")
    return Check("browser", CheckStatus.OK, found)


def account_checks(provider: str, regions: str | None, account_file: str | None) -> list[Check]:
    """Return the checks. Raise ProviderError, MissingExtraError, SpecError, UsageError."""
    account = load_account(account_file)
    with connected_provider(provider, regions, account, Capability.ACCOUNT_CHECKS) as doctor:
        checks = list(doctor.checks(account.owner, account.store))
    return [*checks, *store_checks(account)]


def access_policies(provider: str, regions: str | None, account_file: str | None) -> str:
    """Return the minimal permissions of the provider's roles. Raise as ``account_checks``."""
    account = load_account(account_file)
    with connected_provider(provider, regions, account, Capability.ACCOUNT_CHECKS) as doctor:
        return json.dumps(doctor.access_policies(account.owner, account.store), indent=2)


REINSTALL = f"pip install --force-reinstall {DISTRIBUTION}"
FOR_DEVELOPERS = "dev"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


def version_of(package: str) -> str | None:
    """Return the installed version, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def core_checks() -> Iterator[Check]:
    """Check the distribution itself and each package that it requires."""
    needs = _needs()
    if not needs:
        hint = "pip install -e . in a working tree makes its packages known"
        yield Check("packages", CheckStatus.MISSING, f"{DISTRIBUTION} is not installed", hint)
    for name in needs.get("", ()):
        found = version_of(name)
        if found is None:
            yield Check(name, CheckStatus.BROKEN, "not installed", REINSTALL)
        else:
            yield Check(name, CheckStatus.OK, found)
    foreign = version_of(FOREIGN)
    if foreign is not None:
        yield Check(
            f"package {FOREIGN}",
            CheckStatus.BROKEN,
            f"{foreign}, which is another project's and has files of the same names",
            f"pip uninstall {FOREIGN}, then {REINSTALL}",
        )


def extra_checks() -> Iterator[Check]:
    """Check each extra, with all of its packages."""
    for extra, packages in _needs().items():
        if extra not in ("", FOR_DEVELOPERS):
            yield _extra(extra, packages)


def _extra(name: str, packages: tuple[str, ...]) -> Check:
    found = {package: version_of(package) for package in packages}
    label = f"extra {name}"
    missing = [package for package, version in found.items() if version is None]
    if missing:
        hint = install_hint(name)
        return Check(label, CheckStatus.MISSING, f"{', '.join(missing)} not installed", hint)
    return Check(label, CheckStatus.OK, ", ".join(f"{p} {version}" for p, version in found.items()))


def _needs() -> Mapping[str, tuple[str, ...]]:
    """Return packages by extra, under "" those always required; empty if that is unknown."""
    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    needs: dict[str, tuple[str, ...]] = {}
    for line in required:
        name, extra = _NAME.match(line), _EXTRA.search(line)
        assert name is not None, line
        key = extra[1] if extra else ""
        needs[key] = (*needs.get(key, ()), name[0])
    return needs
