"""The packages of this installation, as `costopt doctor` looks at them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import metadata

from costopt.domain.distribution import DISTRIBUTION, FOREIGN, install_hint
from costopt.provider.base import Check, CheckStatus

REINSTALL = f"pip install --force-reinstall {DISTRIBUTION}"
FOR_DEVELOPERS = "dev"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


def version_of(package: str) -> str | None:
    """The version that is installed, None where there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def core_checks() -> Iterator[Check]:
    """The distribution itself, and each package that it cannot do without."""
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
    """Each extra, with all of its packages."""
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
    """Packages by extra, under "" those that are always needed; nothing where it is not known."""
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
