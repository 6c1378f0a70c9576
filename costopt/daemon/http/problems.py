"""Errors as HTTP reports them: problem details (RFC 9457) with the hint and the exit code."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from costopt.daemon.http.requests import PATTERN_MEANINGS
from costopt.daemon.http.schemas import ProblemDetails
from costopt.domain.errors import (
    CostoptError,
    GuardTrippedError,
    InfeasibleError,
    LedgerError,
    SpecError,
)
from costopt.domain.text import encodable_text
from costopt.spec.yaml_document import SpecFileError

MEDIA_TYPE = "application/problem+json"
STATUS_DESCRIPTIONS = {
    401: "No token, or none that the daemon knows.",
    403: "The token does not have the scope.",
    404: "No resource has that name.",
    408: "The body did not arrive in time.",
    409: "The request conflicts with the current state.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "A parameter or the body is malformed; the answer says where.",
    429: "The tenant sends more requests than its limit; Retry-After says when to try again.",
    500: "The daemon failed; see its log.",
    503: "The daemon's database cannot be read or written now.",
}
_USAGE_STATUSES = (400, 404, 409, 413, 422)

log = logging.getLogger("costopt.daemon.api")


class HttpProblemError(HTTPException):
    """Ends a request with a problem response."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
        exit_code: int | None = None,
        problems: Sequence[object] = (),
    ) -> None:
        super().__init__(status, detail, dict(headers) if headers else None)
        self.hint = hint
        self.exit_code = (2 if status in _USAGE_STATUSES else 1) if exit_code is None else exit_code
        self.problems = tuple(str(problem) for problem in problems)

    @classmethod
    def of(cls, error: CostoptError, status: int) -> HttpProblemError:
        """Return the problem that ``error`` is, with its message, hint and exit code."""
        return cls(
            status,
            error.message,
            hint=error.hint,
            exit_code=error.exit_code,
            problems=getattr(error, "problems", ()),
        )

    def response(self) -> Response:
        """Return the answer."""
        details = ProblemDetails(
            title=HTTPStatus(self.status_code).phrase,
            status=self.status_code,
            detail=self.detail,
            hint=self.hint,
            exit_code=self.exit_code,
            problems=self.problems,
        )
        return Response(details.model_dump_json(), self.status_code, self.headers, MEDIA_TYPE)


def problem_of(error: Exception, spec_status: int = 422) -> HttpProblemError:
    """Return how HTTP reports an error; ``spec_status`` is the status of a SpecError that no file
    caused. An error that is not known to be safe to show is a 500 without details."""
    match error:
        case HttpProblemError():
            return error
        case HTTPException():
            return HttpProblemError(error.status_code, error.detail, headers=error.headers)
        case RequestValidationError():
            return _malformed(error.errors())
        case SpecFileError():
            return HttpProblemError.of(error, 422)
        case SpecError():
            return HttpProblemError.of(error, spec_status)
        case GuardTrippedError() | InfeasibleError():
            return HttpProblemError.of(error, 409)
        case CostoptError():
            log.error("%s", error.message, exc_info=error)
            return HttpProblemError.of(error, 503 if isinstance(error, LedgerError) else 500)
    return HttpProblemError(500, "the daemon failed at this; its log says how")


@contextmanager
def spec_errors_as(status: int) -> Iterator[None]:
    """Report a SpecError raised inside with this status."""
    try:
        yield
    except SpecError as error:
        raise problem_of(error, status) from error


async def read_body(request: Request, max_bytes: int, timeout_s: float) -> bytes:
    """Return the whole body of a request.

    Raise HttpProblemError if it is too large (413), too slow (408) or cut off (400).
    """
    data = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for piece in request.stream():
                data += piece
                if len(data) > max_bytes:
                    raise HttpProblemError(
                        413, f"the body is larger than {max_bytes / 2**20:g} MiB"
                    )
    except TimeoutError:
        raise HttpProblemError(408, f"the body did not arrive within {timeout_s:g} s") from None
    except ClientDisconnect:
        raise HttpProblemError(400, "the body ended early") from None
    return bytes(data)


def _malformed(details: Sequence[Mapping[str, Any]]) -> HttpProblemError:
    """A path that cannot name anything is a 404, anything else that is malformed a 422."""
    problems = [encodable_text(_problem(detail)) for detail in details]
    status = 404 if any(detail["loc"][0] == "path" for detail in details) else 422
    hint = "see /openapi.json for what is expected"
    return HttpProblemError(status, "; ".join(problems), hint=hint, problems=problems)


def _problem(detail: Mapping[str, Any]) -> str:
    subject = ".".join(str(part) for part in detail["loc"][1:]) or "the body"
    match detail["type"]:
        case "missing":
            said = "is missing"
        case "extra_forbidden":
            said = "unknown field"
        case "model_attributes_type":
            said = "must be a JSON object"
        case "string_pattern_mismatch":
            said = f"must be {PATTERN_MEANINGS[detail['ctx']['pattern']]}"
        case _:
            said = re.sub(r"^\w+ should ", "must ", detail["msg"].removeprefix("Value error, "))
    return f"{subject} {said}" if subject == "the body" else f"{subject}: {said}"
