"""What bit-equality depends on besides the code: recorded, and compared when it may change."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def runtime_conditions() -> dict[str, str]:
    """Those of this process. Two that have the same compute the same bits."""
    found = {
        "torch": str(torch.__version__),
        "threads": str(torch.get_num_threads()),
        "CPU kernels": torch.backends.cpu.get_cpu_capability(),
        "matmul precision": torch.get_float32_matmul_precision(),
    }
    if torch.cuda.is_available():
        found["GPU"] = torch.cuda.get_device_name()
        found["CUDA"] = str(torch.version.cuda)
        found["cuDNN"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
        found["TF32"] = str(torch.backends.cuda.matmul.allow_tf32)
        found["ordered kernels"] = str(torch.are_deterministic_algorithms_enabled())
    return found


def nondeterministic_kernels() -> str | None:
    """Why this process may not even repeat itself, or None."""
    if torch.cuda.is_available() and not torch.are_deterministic_algorithms_enabled():
        return "CUDA kernels may add in any order without torch.use_deterministic_algorithms(True)"
    return None


def changed_conditions(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """What differs, as "threads 1 became 2"."""
    names = sorted(before.keys() | now.keys())
    return [
        f"{name} {before.get(name, 'unknown')} became {now.get(name, 'unknown')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def encode_conditions(conditions: dict[str, str]) -> tuple[str, ...]:
    """As ranks tell them to each other."""
    return tuple(f"{name}={value}" for name, value in conditions.items())


def rank_differences(members: Sequence[tuple[str, ...]]) -> list[str]:
    """Where ranks that train together, of whom each has told its own, do not compute the same
    bits."""
    if len(set(members)) <= 1:
        return []
    common = set(members[0]).intersection(*members)
    other = sorted({condition for each in members for condition in each} - common)
    return [f"members differ: {', '.join(other)}"]


class ExactnessGuarantee:
    """What held so far: "exact", or "close" and everything that voided it."""

    def __init__(self, voided: list[str] | None = None) -> None:
        self.voided = [] if voided is None else voided

    def void(self, *reasons: str) -> None:
        """From here on the result may differ in its last bits. Said once for each reason."""
        self.voided += [reason for reason in reasons if reason not in self.voided]

    def __str__(self) -> str:
        return f"close: {'; '.join(self.voided)}" if self.voided else "exact"
