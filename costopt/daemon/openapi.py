"""The OpenAPI 3.1 document of the API, written from its operations and their types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from costopt import __version__
from costopt.daemon.answers import ProblemDetails
from costopt.daemon.json_schema import Schema, SchemaBuilder
from costopt.daemon.operation import Operation, Parameter, ParameterLocation
from costopt.daemon.refusals import MEDIA_TYPE

API_DESCRIPTION = (
    "Hand jobs to a costopt daemon, see what it does and steer it. Over the network every request "
    "carries a bearer token; over the daemon's local socket, which only its owner opens, none. "
    "The scope that an operation needs stands in x-scope; admin holds submit, submit holds read. "
    "Times are UTC. What is unknown is null."
)
STATUS_DESCRIPTIONS = {
    401: "No token, or none that the daemon knows.",
    403: "The token does not have the scope.",
    404: "There is nothing of that name.",
    408: "The body did not come in time.",
    409: "What is asked for contradicts what is.",
    413: "The body is too large.",
    415: "The body is no JSON.",
    422: "A parameter or the body is malformed; the answer says where.",
    500: "The daemon failed; its log says how.",
    503: "The daemon's database cannot be read or written now.",
}


def openapi(operations: Iterable[Operation]) -> dict[str, Any]:
    """The whole document."""
    schemas = SchemaBuilder()
    schemas.of(ProblemDetails)
    paths: dict[str, Any] = {}
    for operation in operations:
        described = _operation(operation, schemas)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    paths["/openapi.json"] = {"get": _openapi()}
    paths["/metrics"] = {"get": _metrics()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "costopt daemon", "version": __version__, "description": API_DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": schemas.named,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation, schemas: SchemaBuilder) -> dict[str, Any]:
    answer = {"application/json": {"schema": schemas.of(operation.answer)}}
    responses: dict[str, Any] = {
        str(operation.status): {"description": _sentence(operation.answer), "content": answer}
    }
    if operation.failing is not None:
        responses[str(operation.failing)] = {"description": "It is not so.", "content": answer}
    for status in _refusals(operation):
        responses.setdefault(str(status), _refusal(status))
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": responses,
    }
    if operation.scope is not None:
        described |= {"security": [{"token": []}], "x-scope": operation.scope.value}
    if operation.parameters:
        described["parameters"] = [_parameter(each, schemas) for each in operation.parameters]
    if operation.body is not None:
        content = {"application/json": {"schema": schemas.body(operation.body)}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _refusals(operation: Operation) -> list[int]:
    statuses = {422, 500, 503}
    if operation.scope is not None:
        statuses |= {401, 403}
    if operation.refusal is not None:
        statuses.add(operation.refusal)
    if any(each.place is ParameterLocation.PATH for each in operation.parameters):
        statuses.add(404)
    if operation.body is not None:
        statuses |= {408, 413, 415}
    return sorted(statuses)


def _refusal(status: int) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{ProblemDetails.__name__}"}
    return {"description": STATUS_DESCRIPTIONS[status], "content": {MEDIA_TYPE: {"schema": schema}}}


def _parameter(parameter: Parameter, schemas: SchemaBuilder) -> dict[str, Any]:
    schema: Schema = schemas.of(parameter.hint)
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {
        "name": parameter.name,
        "in": parameter.place.value,
        "required": parameter.place is ParameterLocation.PATH,
        "description": parameter.about,
        "schema": schema,
    }


def _openapi() -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}}}
    return {
        "operationId": "openapi",
        "summary": "This document.",
        "responses": {"200": {"description": "OpenAPI 3.1.", "content": content}},
    }


def _metrics() -> dict[str, Any]:
    content = {"text/plain": {"schema": {"type": "string"}}}
    responses = {"200": {"description": "Prometheus's text format.", "content": content}}
    responses |= {str(status): _refusal(status) for status in (401, 403, 500, 503)}
    return {
        "operationId": "metrics",
        "summary": "What is measured, for Prometheus.",
        "security": [{"token": []}],
        "x-scope": "read",
        "responses": responses,
    }


def _sentence(of: type) -> str:
    return " ".join((of.__doc__ or of.__name__).split())
