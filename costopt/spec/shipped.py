"""The policies that come with costopt."""

from __future__ import annotations

from pathlib import Path

BUNDLED_POLICIES = ("cheapest", "balanced", "greenest", "deadline-first", "on-demand")


def bundled_policies() -> tuple[str, ...]:
    """Their names, the plainest first."""
    found = {path.stem for path in _folder().glob("*.yaml")}
    return tuple(name for name in BUNDLED_POLICIES if name in found) + tuple(
        sorted(found - set(BUNDLED_POLICIES))
    )


def bundled_policy_path(name: str) -> str:
    """The file of a shipped policy."""
    return str(_folder() / f"{name}.yaml")


def _folder() -> Path:
    """Inside the installed package, or beside it in a working tree."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "policies"
    return installed if installed.is_dir() else package.parent / "policies"
