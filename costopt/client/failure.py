"""How a request to a daemon fails, with the exit code that the command line ends with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costopt.domain.errors import CostoptError


class ApiError(CostoptError):
    """The daemon answered with a refusal; ``status`` is HTTP's."""

    def __init__(self, message: str, *, hint: str | None, status: int, exit_code: int) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.exit_code = exit_code  # type: ignore[misc]

    @classmethod
    def of(cls, status: int, answer: Mapping[str, Any]) -> ApiError:
        """From the answer, as far as it says."""
        code, hint = answer.get("exit_code"), answer.get("hint")
        return cls(
            str(answer.get("detail") or f"the daemon answered with HTTP status {status}"),
            hint=str(hint) if hint else None,
            status=status,
            exit_code=code if isinstance(code, int) and 0 < code < 126 else 1,
        )


class DaemonUnreachableError(CostoptError):
    """Nobody answers at the daemon's address, or somebody else does."""

    def __init__(self, address: str, why: object) -> None:
        reason = getattr(why, "strerror", None) or str(why) or type(why).__name__
        super().__init__(
            f"no daemon answers at {address}: {str(reason).lower()}",
            hint="start one with costopt daemon, or name it with --server or COSTOPT_SERVER",
        )
