"""Energy of the CPU packages and their memory, from the kernel's powercap tree.

Each zone counts microjoules in ``energy_uj`` and begins again at 0 beyond
``max_energy_range_uj``: after some 15 minutes at 300 W, so it must be read more often than that.
Zones named package-N hold the cores; a dram zone under them is not part of its package; psys is
the whole platform and would count the packages twice. Since 2020 only root may read them
(CVE-2020-8694). (Linux kernel documentation, "Power Capping Framework".)
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/class/powercap")


class RaplMeter:
    """Sums the zones that count. ``sample`` raises OSError where one cannot be read any more."""

    def __init__(self, zones: list[Path]) -> None:
        """Raises OSError and ValueError where a zone cannot be read."""
        self._zones = [_Zone(zone) for zone in zones]

    def sample(self) -> float:
        """Joules since the last sample. Raises OSError, ValueError."""
        return sum(zone.joules() for zone in self._zones)


def open_rapl_meter(root: Path = ROOT) -> tuple[RaplMeter | None, str]:
    """The meter, or None and why there is none."""
    zones = _zones(root)
    if not zones:
        return None, f"CPUs are not measured: {root} holds no RAPL package"
    try:
        return RaplMeter(zones), ""
    except PermissionError as error:
        return None, f"CPUs are not measured: {error.filename} may be read by root only"
    except (OSError, ValueError) as error:
        return None, f"CPUs are not measured: {error}"


def _zones(root: Path) -> list[Path]:
    """Packages, and the memory beside them. A package in a second driver's tree is the same."""
    packages = [z for z in sorted(root.glob("intel-rapl:*")) if _name(z).startswith("package")]
    below = [z for package in packages for z in sorted(root.glob(f"{package.name}:*"))]
    return packages + [zone for zone in below if _name(zone) == "dram"]


def _name(zone: Path) -> str:
    try:
        return (zone / "name").read_text().strip()
    except OSError:
        return ""


class _Zone:
    def __init__(self, zone: Path) -> None:
        self._counter = zone / "energy_uj"
        self._range_uj = int((zone / "max_energy_range_uj").read_text())
        self._last_uj = int(self._counter.read_text())

    def joules(self) -> float:
        now_uj = int(self._counter.read_text())
        grown_uj = now_uj - self._last_uj
        self._last_uj = now_uj
        return (grown_uj if grown_uj >= 0 else grown_uj + self._range_uj) / 1e6
