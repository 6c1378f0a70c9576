"""The power limit of this node's GPUs, set through nvidia-smi while the node trains.

``nvidia-smi -pl`` takes whole watts, holds for all GPUs unless ``-i`` names one, and needs root. It
ends well, with a warning, on GPUs that have no such limit, so what it did is read back. Without
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
"""Shorter than the silence after which a node is given up: a hanging tool must not look so."""
TOLERANCE_W = 1.0
SAVED_LIMITS_FILE = "power-limits.json"
"""What the limits were before ours: an agent that takes over a killed one's node finds it here."""


class PowerLimiter:
    """Keeps each GPU to a limit and puts back what was there before. Raises nothing.

    Where this process is killed, a tether puts the limits back in its stead.
    ``asked_w`` is the limit last asked for and ``cap_w`` the one that we set, None where there is
    none of ours; ``message`` says what was done or why it could not be, and is empty until a limit
    is asked for.
    """

    def __init__(self, folder: Path) -> None:
        self.asked_w: float | None = None
        self.cap_w: float | None = None
        self.message = ""
        self._before = folder / SAVED_LIMITS_FILE
        self._tether: subprocess.Popen[bytes] | None = None

    def apply(self, cap_w: float | None) -> None:
        """Limit every GPU to ``cap_w``; None takes our limit off."""
        self.asked_w = cap_w
        if cap_w is None:
            self.restore()
            return
        try:
            self._set(cap_w)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.cap_w = None
            self.message = f"no limit of {cap_w:g} W: {_reason(error)}"
            self._forget_if_unchanged()

    def restore(self) -> None:
        """Put back the limits that were there before ours, if there are any of ours."""
        before = self._remembered()
        if not before:
            return
        try:
            for gpu, watts in before.items():
                _run("-i", gpu, "-pl", f"{watts:.0f}")
            self._before.unlink(missing_ok=True)
            self.message = f"the limits are back at {_watts(before)}"
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.message = f"the limits could not be put back to {_watts(before)}: {_reason(error)}"
        self.asked_w = self.cap_w = None
        self._untie()

    def _tie(self) -> None:
        """A node where no process can be started keeps its limit all the same."""
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
        """Raises OSError, ValueError and SubprocessError with what the tool said."""
        before = self._remembered() or _limits_w()
        lower = {gpu: watts for gpu, watts in before.items() if watts < cap_w - TOLERANCE_W}
        if lower:
            raise ValueError(f"this node is limited to {_watts(lower)} already")
        replace_nondurable(self._before, json.dumps(before).encode())
        with suppress(subprocess.SubprocessError):
            _run("-pm", "1")
        said = _run("-pl", f"{cap_w:.0f}")
        now = _limits_w()
        if any(abs(watts - cap_w) > TOLERANCE_W for watts in now.values()):
            raise ValueError(f"the limits are {_watts(now)} after nvidia-smi said: {said}")
        self.cap_w = cap_w
        self._tie()
        self.message = f"limited {len(now)} GPUs to {cap_w:g} W each, before: {_watts(before)}"

    def _forget_if_unchanged(self) -> None:
        """Where the tool refused, there is nothing to put back."""
        with suppress(OSError, ValueError, subprocess.SubprocessError):
            if self._remembered() == _limits_w():
                self._before.unlink()
                self._untie()

    def _remembered(self) -> dict[str, float]:
        with suppress(OSError, ValueError):
            before = json.loads(self._before.read_bytes())
            return {str(gpu): float(watts) for gpu, watts in before.items()}
        return {}


def _limits_w() -> dict[str, float]:
    """The limit of each GPU by its number. Raises ValueError where one has none."""
    lines = _run("--query-gpu=index,power.limit", "--format=csv,noheader,nounits").splitlines()
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
    """What the tool printed. Raises OSError and SubprocessError."""
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
