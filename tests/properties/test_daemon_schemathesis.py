"""Schemathesis makes up requests from the API's document; every answer keeps to it, none is a 5xx.

Right and wrong requests go to every operation over a real connection with an admin's token. Some
of them ask for names that there are. Operations without parameters and body cannot be asked wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import requests
import schemathesis
from fastapi.dependencies.utils import get_flat_params
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from costopt.daemon.http.app import api_document, api_operations
from costopt.daemon.http.routes import ApiRoute
from costopt.domain.control import Scope
from costopt.protocol.node_commands import CommandBox, CommandResult
from tests.support.daemon_api import Served, method_of, served

NAMES = {"job": ("one", "two"), "decision": ("one-d1",), "proposal": ("p-1",), "token": ("t0",),
         "task": ("0", "7"), "node": ("i-1",), "command": ("c-1",)}  # fmt: skip
TRIES = 4
POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
MORE_THAN_A_SCHEMA_SAYS = (
    "submitJob", "planJob", "listJobs", "decisions", "occurrences", "proposals",
)  # fmt: skip
"""Text that keeps to the schema may still be no job, and no cursor of a list."""


@cache
def document() -> Any:
    return schemathesis.openapi.from_dict(api_document())


CASES = [
    pytest.param(route, mode, id=f"{route.unique_id}-{mode.value}")
    for route in api_operations()
    for mode in (POSITIVE, NEGATIVE)
    if mode is POSITIVE or get_flat_params(route.dependant) or route.body_field
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("daemon")) as each:
        each.token(Scope.READ)
        CommandBox(each.logs.store, "one").post_result("i-1", CommandResult("c-1", 0, "GPU 0"))
        yield each


@pytest.fixture(scope="module")
def session(daemon: Served) -> Iterator[requests.Session]:
    with requests.Session() as each:
        each.headers["Authorization"] = f"Bearer {daemon.token(Scope.ADMIN)}"
        each.headers["Connection"] = "close"
        yield each


@pytest.mark.parametrize(("route", "mode"), CASES)
def test_a_response_conforms_to_the_document(
    route: ApiRoute, mode: GenerationMode, daemon: Served, session: requests.Session
) -> None:
    made = document()[route.path][method_of(route)].as_strategy(generation_mode=mode)

    @given(case=made, known=st.booleans(), data=st.data())
    @settings(
        max_examples=TRIES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=True,
    )
    def holds(case: Any, known: bool, data: st.DataObject) -> None:
        left_out = []
        if known:
            for name in case.path_parameters or {}:
                case.path_parameters[name] = data.draw(st.sampled_from(NAMES[name]))
            left_out += ["negative_data_rejection"]
        if route.unique_id in MORE_THAN_A_SCHEMA_SAYS:
            left_out += ["positive_data_acceptance"]
        case.call_and_validate(
            base_url=daemon.url,
            session=session,
            excluded_checks=[CHECKS.get_one(name) for name in left_out],
        )

    holds()
