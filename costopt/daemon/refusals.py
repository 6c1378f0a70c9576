"""Errors as HTTP says them: RFC 9457, the hint and the exit code with it."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from costopt.daemon.answers import ProblemDetails
from costopt.daemon.json_form import to_json
from costopt.domain.errors import CostoptError, GuardTrippedError, InfeasibleError, LedgerError

MEDIA_TYPE = "application/problem+json"


class HttpProblemError(Exception):
    """A request gets this answer instead of what it asked for."""

    def __init__(
        self, status: int, detail: str, *, hint: str | None = None, headers: Any = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.hint = hint
        self.headers = headers


def request_refused(error: HttpProblemError) -> Response:
    """The answer to a request that is refused before anything is tried."""
    exit_code = 2 if error.status in (400, 404, 409, 413, 422) else 1
    return _response(
        ProblemDetails(_title(error.status), error.status, error.detail, error.hint, exit_code),
        error.headers,
    )


def operation_failed(error: CostoptError, status: int) -> Response:
    """The answer where what was asked for failed with an error of ours."""
    problems = tuple(str(each) for each in getattr(error, "problems", ()))
    return _response(
        ProblemDetails(
            _title(status), status, error.message, error.hint, error.exit_code, problems
        )
    )  # fmt: skip


def status_of(error: CostoptError) -> int:
    """The HTTP status of an error that is not the request's fault."""
    if isinstance(error, LedgerError):
        return 503
    return 409 if isinstance(error, GuardTrippedError | InfeasibleError) else 500


def _response(said: ProblemDetails, headers: Any = None) -> Response:
    body = json.dumps(to_json(said)).encode()
    return Response(body, said.status, headers, MEDIA_TYPE)


def _title(status: int) -> str:
    return HTTPStatus(status).phrase
