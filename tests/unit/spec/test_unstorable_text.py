"""Text that no file, variable or database can hold is refused in every file, with its place."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costopt.domain.control import Scope
from costopt.spec.yaml_document import SpecFileError, parse_document
from tests.support.daemon_api import JOB, served
from tests.support.live_run import PATIENCE_S

UNSTORABLE = ("\\0", "\\ud800", "\\udfff")


@given(
    before=st.text("abc/: ", max_size=5),
    escape=st.sampled_from(UNSTORABLE),
    where=st.sampled_from(('x: "{}"', 'x: {{y: [1, "{}"]}}', '"{}": 1', 'x: {{"{}": 1}}')),
)
def test_it_is_refused_wherever_it_stands(before: str, escape: str, where: str) -> None:
    with pytest.raises(SpecFileError) as caught:
        parse_document(where.format(before + escape), "job.yaml")
    (problem,) = caught.value.problems
    assert problem.line == 1
    problem.message.encode()


@pytest.mark.parametrize(
    "line",
    [
        'workdir: "a\\0b"',
        'data: {uri: "s3://a/\\0b", size_gib: 1}',
        'env: {A: "x\\0y"}',
        'run: [python, "\\ud800"]',
        'checkpoint: {uri: "sa\\0ves", size_gib: 1, save: 10s, restore: 1m}',
    ],
)
def test_a_job_over_http_is_refused_for_it(tmp_path: Path, line: str) -> None:
    field = line.partition(":")[0]
    job = "".join(
        each + "\n" for each in JOB.format(name="x").splitlines() if not each.startswith(field)
    )
    with served(tmp_path) as daemon:
        token = daemon.token(Scope.SUBMIT)
        asking = http.client.HTTPConnection(daemon.url.removeprefix("http://"), timeout=PATIENCE_S)
        head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = json.dumps({"job": f"{job}{line}\n", "policy": "cheapest"})
        asking.request("POST", "/v1/jobs", body, head)
        result = asking.getresponse()
        assert (result.status, field in json.loads(result.read())["detail"]) == (422, True)
        asking.close()
