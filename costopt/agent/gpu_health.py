"""The health of this node's GPUs, read beside the agent's loop: utilization, errors and Xids.

``nvidia-smi`` is asked every few seconds. Its counter of uncorrected ECC errors begins with the
driver, so only its growth since the agent began counts. Ampere and newer GPUs report remapped rows,
older ones retired pages, which wait for a reset in the same way. It exits with 15 if a GPU is
inaccessible. (nvidia-smi manual; NVIDIA GPU Memory Error Management, "Row Remapping".)

The driver's error codes come from NVML's events; where those are unavailable, from the kernel's
log, which only root may read on most systems.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from costopt.domain.gpu_health import GpuHealth

GPU_QUERY = (
    "--query-gpu=index,utilization.gpu,ecc.errors.uncorrected.volatile.total,retired_pages.pending"
)
ROWS_QUERY = "--query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure"
FORMAT = "--format=csv,noheader,nounits"
LOST_EXIT_CODE = 15
COMMAND_TIMEOUT_S = 30.0
"""The tool takes seconds per GPU where the driver is not kept loaded. Only its thread waits."""
MAX_XIDS = 32
FLAGS = {"yes": True, "1": True, "no": False, "0": False}

XidReader = Callable[[], Iterable[int]]
"""Returns the codes that were reported since it was last called."""


class GpuHealthMonitor:
    """Reads the GPUs every ``every_s`` seconds by ``tool``, which may be absent. Raises nothing."""

    def __init__(self, tool: str, every_s: float, read_xids: XidReader = tuple) -> None:
        self._tool = tool
        self._every_s = every_s
        self._read_xids = read_xids
        self._health: GpuHealth | None = None
        self._first_errors: dict[str, int] = {}
        self._sampled_at = time.monotonic()
        self._closed = threading.Event()

    def start(self) -> None:
        """Read periodically from now on, in a thread of its own."""
        threading.Thread(target=self._run, name="gpu-health", daemon=True).start()

    def reading(self) -> GpuHealth | None:
        """Return the newest reading without waiting for the tool; None before the first."""
        return self._health

    def close(self) -> None:
        """Read no more."""
        self._closed.set()

    def sample(self) -> None:
        """Read once."""
        before = self._health or GpuHealth()
        xids = tuple(dict.fromkeys((*before.xids, *self._read_xids())))[:MAX_XIDS]
        try:
            rows, remapped = _rows(self._tool, GPU_QUERY), _rows(self._tool, ROWS_QUERY)
        except FileNotFoundError:
            self._health = replace(before, xids=xids) if xids else self._health
            return
        except (OSError, subprocess.SubprocessError) as error:
            self._health = replace(before, xids=xids, lost=before.lost or _is_lost(error))
            return
        now_s = time.monotonic()
        passed_s, self._sampled_at = now_s - self._sampled_at, now_s
        busy = _utilization(rows)
        self._health = replace(
            before,
            watched_s=before.watched_s + (0.0 if busy is None else passed_s),
            busy_s=before.busy_s + (busy or 0.0) * passed_s,
            ecc_errors=self._new_errors(rows),
            remap_pending=_any_flag([row[3] for row in rows] + [row[1] for row in remapped]),
            remap_failed=_any_flag([row[2] for row in remapped]),
            xids=xids,
        )

    def _new_errors(self, rows: list[list[str]]) -> int | None:
        counted = {row[0]: int(row[2]) for row in rows if row[2].isdigit()}
        for gpu, errors in counted.items():
            self._first_errors.setdefault(gpu, errors)
        grown = [max(0, errors - self._first_errors[gpu]) for gpu, errors in counted.items()]
        return sum(grown) if grown else None

    def _run(self) -> None:
        while not self._closed.wait(self._every_s):
            self.sample()


def _rows(tool: str, query: str) -> list[list[str]]:
    """Return the cells of each line, four at least. Raise OSError or SubprocessError; nothing is
    raised for a query that the tool's version lacks: its cells are empty."""
    done = subprocess.run(  # noqa: S603
        [tool, query, FORMAT],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_TIMEOUT_S,
    )
    if done.returncode == LOST_EXIT_CODE or "GPU is lost" in done.stdout + done.stderr:
        raise subprocess.CalledProcessError(LOST_EXIT_CODE, tool, done.stdout, done.stderr)
    if done.returncode != 0:
        return []
    lines = (line.split(",") for line in done.stdout.splitlines() if line.strip())
    return [[*(cell.strip() for cell in cells), "", "", "", ""] for cells in lines]


def _is_lost(error: Exception) -> bool:
    return isinstance(error, subprocess.CalledProcessError) and error.returncode == LOST_EXIT_CODE


def _utilization(rows: list[list[str]]) -> float | None:
    """Return the mean share over GPUs, None where that of any is unknown."""
    known = [float(row[1]) / 100 for row in rows if row[1].isdigit()]
    return sum(known) / len(known) if known and len(known) == len(rows) else None


def _any_flag(cells: Iterable[str]) -> bool | None:
    """Return whether any GPU says yes, None where none says anything."""
    known = [flag for cell in cells if (flag := FLAGS.get(cell.lower())) is not None]
    return any(known) if known else None


KERNEL_LOG = Path("/dev/kmsg")
KERNEL_RECORD_BYTES = 8192
XID_LINE = re.compile(rb"NVRM: Xid \([^)]*\): (\d{1,5})")


def open_xid_reader() -> XidReader:
    """Return what reads the driver's error codes from now on; nothing where none can be read."""
    with suppress(Exception):  # no package, no driver, or events are not supported
        return NvmlXids().read
    with suppress(OSError):
        return KernelLogXids(KERNEL_LOG).read
    return tuple


class NvmlXids:
    """The events of NVML, in which the driver reports Xids to any user."""

    def __init__(self) -> None:
        """Raise ImportError or NVMLError where there are none."""
        import pynvml

        self._nvml: Any = pynvml
        pynvml.nvmlInit()
        self._events = pynvml.nvmlEventSetCreate()
        for index in range(pynvml.nvmlDeviceGetCount()):
            gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
            pynvml.nvmlDeviceRegisterEvents(gpu, pynvml.nvmlEventTypeXidCriticalError, self._events)

    def read(self) -> Iterable[int]:
        """Return the codes since the last call."""
        found: list[int] = []
        with suppress(self._nvml.NVMLError):  # a timeout ends it
            while len(found) < MAX_XIDS:
                found.append(int(self._nvml.nvmlEventSetWait_v2(self._events, 0).eventData))
        return found


class KernelLogXids:
    """The lines of the kernel's log that name an Xid, from its present end on."""

    def __init__(self, log: Path) -> None:
        """Raise OSError where the log may not be read."""
        self._log = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self._log, 0, os.SEEK_END)

    def read(self) -> Iterable[int]:
        """Return the codes since the last call."""
        found: list[int] = []
        while True:
            try:
                record = os.read(self._log, KERNEL_RECORD_BYTES)
            except BrokenPipeError:  # records were overwritten before they were read
                continue
            except OSError:
                return found
            if not record:
                return found
            found += [int(code) for code in XID_LINE.findall(record)]
