"""The power limit of this node's GPUs, set through nvidia-smi while the node trains.

``nvidia-smi -pl`` takes whole watts, applies to all GPUs unless ``-i`` names one, and needs root.
On GPUs without such a limit it exits with 0 and a warning, so the result is read back. Without
persistence mode (``-pm 1``) the driver forgets the limit as soon as nothing uses the GPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from costopt.agent import restore_power_limits
from costopt.store.atomic_file import replace_nondurable

TOOL = "nvidia-smi"
TETHER = str(Path(restore_power_limits.__file__).resolve())
COMMAND_TIMEOUT_S = 4.0
"""Shorter than the heartbeat timeout: a hanging tool must not make the node look dead."""
TOLERANCE_W = 1.0
SAVED_LIMITS_FILE = "power-limits.json"
"""Holds the limits before ours, for an agent that replaces a killed one on this node."""


class PowerLimiter:
    """Limits each GPU's power and restores the previous limits. Raises nothing.

    If this process is killed, ``restore_power_limits`` restores them in its stead. ``asked_w`` is
    the limit last requested and ``cap_w`` the one that we set, None if none of ours applies;
    ``message`` says what was done or why it failed, and is empty until a limit is requested.
    """

    def __init__(self, folder: Path) -> None:
        self.asked_w: float | None = None
        self.cap_w: float | None = None
        self.message = ""
        self._before = folder / SAVED_LIMITS_FILE
        self._tether: subprocess.Popen[bytes] | None = None

    def apply(self, cap_w: float | None) -> None:
        """Limit every GPU to ``cap_w``; None removes our limit."""
        self.asked_w = cap_w
        if cap_w is None:
            self.restore()
            return
        try:
            self._set(cap_w)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.cap_w = None
            self.message = f"cannot limit to {cap_w:g} W: {_reason(error)}"
            self._forget_if_unchanged()

    def restore(self) -> None:
        """Restore the limits that were set before ours, if any of ours applies."""
        before = self._remembered()
        if not before:
            return
        try:
            for gpu, watts in before.items():
                _run("-i", gpu, "-pl", f"{watts:.0f}")
            self._before.unlink(missing_ok=True)
            self.message = f"restored the limits of {_watts(before)}"
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.message = f"cannot restore the limits of {_watts(before)}: {_reason(error)}"
        self.asked_w = self.cap_w = None
        self._untie()

    def range_w(self) -> tuple[float, float]:
        """Return the lowest limit that every GPU allows, and the lowest that was set before ours,
        in watts. Raise ValueError with the tool's output.
        """
        try:
            lowest = _limits_w("power.min_limit")
            before = self._remembered() or _limits_w()
        except (OSError, subprocess.SubprocessError) as error:
            raise ValueError(_reason(error)) from None
        return max(lowest.values()), min(before.values())

    def _tie(self) -> None:
        """A node on which no process can be started keeps its limit regardless."""
        if self._tether is None:
            with suppress(OSError):
                self._tether = subprocess.Popen(  # noqa: S603
                    [sys.executable, "-SI", TETHER, str(self._before), TOOL],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )

    def _untie(self) -> None:
        tether, self._tether = self._tether, None
        if tether is not None and tether.stdin is not None:
            tether.stdin.close()
            tether.wait()

    def _set(self, cap_w: float) -> None:
        """Raise OSError, ValueError or SubprocessError with the tool's output."""
        before = self._remembered() or _limits_w()
        lower = {gpu: watts for gpu, watts in before.items() if watts < cap_w - TOLERANCE_W}
        if lower:
            raise ValueError(f"this node is limited to {_watts(lower)} already")
        replace_nondurable(self._before, json.dumps(before).encode())
        self._tie()  # first: a kill right after the limit is set leaves it otherwise
        # Without persistence mode the driver forgets the limit with its last client.
        with suppress(subprocess.SubprocessError):
            _run("-pm", "1")
        said = _run("-pl", f"{cap_w:.0f}")
        now = _limits_w()
        if any(abs(watts - cap_w) > TOLERANCE_W for watts in now.values()):
            raise ValueError(f"the limits are {_watts(now)} after nvidia-smi said: {said}")
        self.cap_w = cap_w
        self.message = f"limited {len(now)} GPUs to {cap_w:g} W each, before: {_watts(before)}"

    def _forget_if_unchanged(self) -> None:
        """If the tool refused, there is nothing to restore."""
        with suppress(OSError, ValueError, subprocess.SubprocessError):
            if self._remembered() == _limits_w():
                self._before.unlink()
                self._untie()

    def _remembered(self) -> dict[str, float]:
        with suppress(OSError, ValueError):
            before = json.loads(self._before.read_bytes())
            return {str(gpu): float(watts) for gpu, watts in before.items()}
        return {}


def _limits_w(figure: str = "power.limit") -> dict[str, float]:
    """Return the limit of each GPU by its number. Raise ValueError if one has none."""
    lines = _run(f"--query-gpu=index,{figure}", "--format=csv,noheader,nounits").splitlines()
    limits: dict[str, float] = {}
    for line in lines:
        gpu, _, watts = line.partition(",")
        try:
            limits[gpu.strip()] = float(watts)
        except ValueError:
            raise ValueError(f"GPU {gpu.strip()} has no power limit: {watts.strip()}") from None
    if not limits:
        raise ValueError("nvidia-smi lists no GPU")
    return limits


def _run(*arguments: str) -> str:
    """Return the tool's output. Raise OSError or SubprocessError if it fails."""
    done = subprocess.run(  # noqa: S603
        [TOOL, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    return done.stdout.strip()


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"there is no {TOOL} on this node"
    if isinstance(error, subprocess.CalledProcessError):
        said = " ".join(f"{error.stdout} {error.stderr}".split())
        return f"{TOOL} ended with {error.returncode}: {said[:300]}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"{TOOL} did not answer within {COMMAND_TIMEOUT_S:g} s"
    return " ".join(str(error).split())[:300]


def _watts(limits: dict[str, float]) -> str:
    distinct = sorted({round(watts) for watts in limits.values()})
    return " and ".join(f"{watts} W" for watts in distinct)
