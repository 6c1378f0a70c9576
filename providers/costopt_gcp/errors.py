"""Maps the errors of Google's client to ProviderErrors: what failed, where, and what to do.

Codes: https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-vm-creation and
https://cloud.google.com/compute/docs/api/how-tos/api-requests-responses ("Error responses").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from costopt.domain.errors import (
    BadRequestError,
    CostoptError,
    ForbiddenError,
    NoCapacityError,
    ProviderError,
    ProviderUnavailableError,
    QuotaExceededError,
    ThrottledError,
)
from costopt.domain.text import excerpt

NO_CAPACITY = (
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    "REGION_RESOURCE_POOL_EXHAUSTED",
    "STOCKOUT",
    "IP_SPACE_EXHAUSTED",
    "IP_SPACE_EXHAUSTED_WITH_DETAILS",
    "VM_MIN_COUNT_NOT_REACHED",
)
"""The last reports only that a gang was refused, so any other reason precedes it."""
QUOTA = frozenset({"QUOTA_EXCEEDED", "quotaExceeded"})
THROTTLED = frozenset(
    {
        "rateLimitExceeded",
        "userRateLimitExceeded",
        "RATE_LIMIT_EXCEEDED",
        "RESOURCE_OPERATION_RATE_EXCEEDED",
        "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED",
        "operationRateExceeded",
    }
)
NOT_READY = frozenset(
    {"RESOURCE_NOT_READY", "resourceNotReady", "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"}
)
FORBIDDEN = frozenset({"PERMISSIONS_ERROR", "PERMISSION_DENIED", "forbidden"})
NOT_ENABLED = frozenset({"accessNotConfigured", "SERVICE_DISABLED"})
UNKNOWN_OUTCOME = frozenset({"INTERNAL_ERROR", "TIMEOUT", "backendError", "internalError"})
EXISTS = frozenset({"RESOURCE_ALREADY_EXISTS", "alreadyExists"})
MISSING = frozenset({"RESOURCE_NOT_FOUND", "notFound"})

HINTS = {
    "RESOURCE_NOT_FOUND": "the zone, machine type, image or network it names does not exist",
    "notFound": "the zone, machine type, image or network it names does not exist",
    "SERVICE_ACCOUNT_ACCESS_DENIED": "grant iam.serviceAccounts.actAs on the nodes' account",
    "INVALID_USAGE": "the zone does not offer this machine type with these accelerators",
}
QUOTA_HINT = (
    "ask for more on the Quotas page of the Cloud console, or allow other GPU models or regions"
)


@contextmanager
def asking(permission: str, about: str) -> Iterator[None]:
    """Raise each error within as a ProviderError: of the call, and of reading its answer.

    ``permission`` is the IAM permission that the call needs ("compute.instances.create"), ``about``
    the pool, zone or thing that it is about. An answer that cannot be read leaves the outcome
    unknown (ProviderUnavailableError), so fields of an answer are read inside this context.
    """
    from google.api_core.exceptions import GoogleAPICallError, RetryError
    from google.auth.exceptions import GoogleAuthError
    from requests.exceptions import RequestException

    try:
        yield
    except CostoptError:
        raise
    except GoogleAPICallError as error:
        raise from_answer(error, permission, about) from error
    except RetryError as error:
        raise _from_retry(error, permission, about) from error
    except GoogleAuthError as error:
        raise from_credentials(error, permission, about) from error
    except (RequestException, OSError) as error:
        raise ProviderUnavailableError(
            f"{about}: {permission} was not answered: {error}"
        ) from error
    except Exception as error:
        raise ProviderUnavailableError(
            f"{about}: the answer to {permission} cannot be read: {type(error).__name__}: "
            f"{excerpt(str(error))}"
        ) from error


def code_of(error: ProviderError) -> str:
    """Return the reason that Google answered with, "" if it did not answer."""
    return _reason(error.__cause__)


def from_answer(error: Any, permission: str, about: str) -> ProviderError:
    """Return the error that the API answered with (a GoogleAPICallError)."""
    status = int(getattr(error, "code", 0) or 0)
    return from_code(_reason(error), str(error.message), permission, about, status=status)


def from_code(
    code: str, message: str, permission: str, about: str, *, status: int = 0
) -> ProviderError:
    """Return the error for a reason and message of an answer or of an operation's errors."""
    said = f"{about}: {code or status}: {excerpt(message)}"
    if code in NO_CAPACITY:
        return NoCapacityError(said)
    if code in QUOTA:
        return QuotaExceededError(said, hint=QUOTA_HINT)
    if code in THROTTLED or status == 429:
        return ThrottledError(said, hint="Google limits calls per project and region; try later")
    if code in NOT_READY:
        return ProviderUnavailableError(said)
    if code in NOT_ENABLED:
        return ForbiddenError(
            said, hint="enable the API it names: `gcloud services enable NAME.googleapis.com`"
        )
    if code in FORBIDDEN or status in (401, 403):
        return _forbidden(code or str(status), permission, about)
    if code in MISSING or code in EXISTS:
        return BadRequestError(said, hint=HINTS.get(code))
    if code in UNKNOWN_OUTCOME or status >= 500:
        return ProviderUnavailableError(said)
    return BadRequestError(said, hint=HINTS.get(code))


def from_operation(
    errors: Sequence[tuple[str, str]], permission: str, about: str, status: int
) -> ProviderError:
    """Return an operation's error: only this, never the answer to the call, reports a stock-out.

    Of several errors it is the one that says most of what can be done about it.
    """
    if not errors:
        return from_code("", "the operation failed without a reason", permission, about, status=500)
    mapped = [from_code(code, text, permission, about, status=status) for code, text in errors]
    order = (QuotaExceededError, ForbiddenError, BadRequestError, ThrottledError, NoCapacityError)
    for kind in order:
        found = [each for each in mapped if isinstance(each, kind)]
        if found:
            return found[0]
    return mapped[0]


def from_credentials(error: Exception, permission: str, about: str) -> ProviderError:
    """Return the error for a failure of the credentials (a GoogleAuthError)."""
    from google.auth import exceptions as auth

    if isinstance(error, auth.DefaultCredentialsError):
        return ForbiddenError(
            f"{about}: {permission} needs Google Cloud credentials, and none were found",
            hint="`gcloud auth application-default login`, or give the machine a service account",
        )
    if isinstance(error, auth.TransportError):
        return ProviderUnavailableError(f"{about}: {permission} was not answered: {error}")
    return ForbiddenError(
        f"{about}: the Google Cloud credentials are not accepted: {error}",
        hint="log in again; what runs is kept, and checkpoints go on with the nodes' own account",
    )


def _from_retry(error: Any, permission: str, about: str) -> ProviderError:
    from google.api_core.exceptions import GoogleAPICallError

    cause = error.cause
    if isinstance(cause, GoogleAPICallError):
        return from_answer(cause, permission, about)
    return ProviderUnavailableError(f"{about}: {permission} was not answered: {cause or error}")


def _forbidden(code: str, permission: str, about: str) -> ForbiddenError:
    return ForbiddenError(
        f"{about}: the Google Cloud credentials may not {permission} ({code})",
        hint=f"grant {permission}; `costopt doctor gcp --iam-policy` prints all that costopt needs",
    )


def _reason(error: object) -> str:
    """Return the first reason of the answer, which says more than its HTTP status.

    Compute Engine and Cloud Storage list ``errors``; newer APIs give one reason of the whole.
    """
    listed = getattr(error, "errors", None) or ()
    first = next((each for each in listed if isinstance(each, dict)), {})
    return str(first.get("reason") or getattr(error, "reason", None) or "")
