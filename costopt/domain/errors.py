"""The tree of costopt's own exceptions, with the exit code that the CLI returns for each.

CostoptError                1   the base: a message, and a hint that says what to do
├── SpecError               2   a job or policy file is wrong: file, line, column, field
├── CatalogError            2   an unknown GPU model, instance type or region
├── MarketError             1   a market file is truncated, empty or holds impossible values
├── WorkloadError           1   a record of jobs cannot be read or holds impossible values
├── PriceListError          1   a public price list cannot be fetched, read or stored
├── DownloadError           1   a file or an answer cannot be fetched over HTTP
├── SignalError             1   a signal, such as carbon intensity, cannot be read or fetched
│   └── CarbonServiceError      a carbon service did not answer, or not in its documented form
├── InfeasibleError         3   no plan meets the deadline; names the binding constraint
├── GuardTrippedError       4   a budget or launch guard stopped the action
├── StaleDataError          5   every price or signal that was needed is too old
├── SolverError             1   the solver failed or answered something unusable
├── LedgerError             1   the ledger cannot be read or written, or is corrupt
│   └── LeadershipLostError     another daemon leads; nothing was written and nothing may be done
├── StoreError              1   an object store refused: no space, no permission, missing
├── CheckpointError         1   no valid checkpoint, or a save that could not be made durable
├── JobFailedError          1   the job's own command failed
├── MissingExtraError       1   an optional dependency is not installed; names the extra
└── ProviderError           1   a cloud refused or failed
    ├── NoCapacityError         the pool has no nodes now; another pool or later may work
    ├── QuotaExceededError      the account's quota is used up
    ├── ForbiddenError          credentials are missing, expired or lack a permission
    ├── ThrottledError          too many calls; retry with backoff
    ├── BadRequestError         the request can never succeed as it stands
    ├── NotSupportedError       the provider does not have this capability
    └── ProviderUnavailableError  the API did not answer; the outcome is unknown

Also the name under which costopt is installed, and the command that installs an extra.
"""

from __future__ import annotations

from typing import ClassVar


class CostoptError(Exception):
    """What happened, to which thing, and (``hint``) what the user can do about it.

    ``code`` names the failure among those of the class, such as ``in_use``: programs and tests
    compare it, as messages may be reworded. Empty where the class is specific enough.
    ``subject`` is the thing: a file, job, node or pool; None where there is none or no code.
    """

    exit_code: ClassVar[int] = 1
    code: str = ""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str | None = None,
        subject: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.subject = subject
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  → {self.hint}"


def failure_message(error: Exception) -> str:
    """Return what to report of an error that one job or provider causes: its message, or the type
    of an error that is not ours."""
    return error.message if isinstance(error, CostoptError) else f"{type(error).__name__}: {error}"


class SpecError(CostoptError):
    """A job or policy file is malformed or says something impossible."""

    exit_code = 2


class CatalogError(CostoptError):
    """A GPU model, instance type or region that is not in the catalog."""

    exit_code = 2


class MarketError(CostoptError):
    """A market file is truncated, empty or holds impossible values."""


class WorkloadError(CostoptError):
    """A record of jobs cannot be read, or a row of it is impossible; names row and column."""


class PriceListError(CostoptError):
    """A public price list cannot be fetched, is not in its known form, or cannot be stored."""


class DownloadError(CostoptError):
    """A file or an answer cannot be fetched over HTTP.

    ``status`` is what the server answered, None where it did not or its answer is not acceptable.
    ``retry_after_s`` is how long it asks to be left alone, None where it does not say.
    """

    def __init__(
        self, message: str, *, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class SignalError(CostoptError):
    """A signal, recorded or live, is missing, truncated, too old or holds impossible values."""


class CarbonServiceError(SignalError):
    """A carbon service did not answer, refused, or answered what cannot be used; see ``code``.

    ``status`` and ``retry_after_s`` are those of DownloadError.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.retry_after_s = retry_after_s


class InfeasibleError(CostoptError):
    """No plan meets the deadline; the message names the binding constraint."""

    exit_code = 3


class GuardTrippedError(CostoptError):
    """A budget or launch guard stopped the action."""

    exit_code = 4


class StaleDataError(CostoptError):
    """Every price or signal that was needed is older than the policy allows."""

    exit_code = 5


class SolverError(CostoptError):
    """The solver failed, or its answer did not survive re-verification."""


class LedgerError(CostoptError):
    """The ledger cannot be read or written, or its content is corrupt."""


class LeadershipLostError(LedgerError):
    """Another daemon leads, or may by now: nothing was written, and nothing may be done."""


class StoreError(CostoptError):
    """An object store refused: no space, no permission, or the object is missing."""


class CheckpointError(CostoptError):
    """No valid checkpoint was found, or a save could not be made durable."""


class JobFailedError(CostoptError):
    """The job's own command failed; the message names the node, exit code and log."""


class MissingExtraError(CostoptError):
    """An optional dependency is not installed; the hint names the extra that provides it."""


class ProviderError(CostoptError):
    """A cloud refused or failed. ``code`` names the kind of failure in ledgers and messages."""

    code = "Provider"


class NoCapacityError(ProviderError):
    """The pool has no nodes now; another pool, or the same later, may work."""

    code = "NoCapacity"


class QuotaExceededError(ProviderError):
    """The account's quota for this family, region or GPU model is used up."""

    code = "QuotaExceeded"


class ForbiddenError(ProviderError):
    """Credentials are missing, expired or lack a permission, which the message names."""

    code = "Forbidden"


class ThrottledError(ProviderError):
    """Too many calls; retry with backoff."""

    code = "Throttled"


class BadRequestError(ProviderError):
    """The request can never succeed as it stands."""

    code = "BadRequest"


class NotSupportedError(ProviderError):
    """The provider does not declare the capability that the called method belongs to."""

    code = "NotSupported"


class ProviderUnavailableError(ProviderError):
    """The API did not answer, so the outcome of the call is unknown."""

    code = "ProviderUnavailable"


DISTRIBUTION = "costopt-spot"
"""The distribution name on package indexes; the package that is imported is ``costopt``. On the
indexes, "costopt" is a different project."""
FOREIGN = "costopt"


def install_hint(extra: str) -> str:
    """Return the command that installs costopt with an extra, such as "aws"."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
