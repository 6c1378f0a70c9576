"""The API: what it answers is what its document says, and nobody changes anything uninvited."""

from __future__ import annotations

import http.client
import json
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate as validate_document

from costopt.client.client import ApiError, DaemonClient, parse_address
from costopt.daemon.http.app import api_operations
from costopt.daemon.http.auth import SESSION_COOKIE
from costopt.daemon.http.routes import MAX_BODY_BYTES, ApiRoute
from costopt.domain.control import DesiredState, Mode, Scope
from costopt.domain.errors import LedgerError
from tests.support.daemon_api import JOB, Served, method_of, served

BODIES: Mapping[str, Any] = {
    "submitJob": {"job": JOB.format(name="new")},
    "planJob": {"job": JOB.format(name="new")},
    "reprioritizeJob": {"priority": 7},
    "runCommand": {"command": ["true"]},
    "halt": {"reason": "prices are odd"},
    "setMode": {"mode": "enforce"},
    "addToken": {"name": "grafana", "scopes": ["read"]},
}
NAMES = {"job": "one", "decision": "one-d1", "proposal": "p-1", "token": "t0", "task": 0,
         "node": "i-1", "command": "c-1"}  # fmt: skip


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as each:
        yield each


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """For what must change nothing."""
    with served(tmp_path_factory.mktemp("standing")) as each:
        before = each.changes()
        yield each
        assert each.changes() == before


def request(
    daemon: Served,
    method: str,
    target: str,
    *,
    token: str | None = None,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Any, http.client.HTTPResponse]:
    """Status, decoded body and response of a request over loopback."""
    connection = http.client.HTTPConnection(daemon.url.removeprefix("http://"), timeout=10)
    sent = {"Content-Type": "application/json"} if body is not None else {}
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    try:
        connection.request(method, target, body, {**sent, **(headers or {})})
        response = connection.getresponse()
        data = response.read()
    finally:
        connection.close()
    kind = response.headers.get("Content-Type", "")
    return response.status, json.loads(data) if "json" in kind else data.decode(), response


def target_of(operation: ApiRoute) -> str:
    return operation.path.format(**NAMES)


def body_of(operation: ApiRoute) -> bytes | None:
    return json.dumps(BODIES[operation.unique_id]).encode() if operation.body_field else None


def document_of(daemon: Served) -> dict[str, Any]:
    status, document, _ = request(daemon, "GET", "/openapi.json")
    assert status == 200
    assert isinstance(document, dict)
    return document


@pytest.mark.slow
def test_the_document_is_openapi_and_holds_every_route(daemon: Served) -> None:
    from starlette.routing import Route

    from costopt.daemon.http.app import build_app

    document = document_of(daemon)
    validate_document(document)
    reported = {
        (path, method.upper()) for path, methods in document["paths"].items() for method in methods
    }
    routes = {
        (route.path, method)
        for route in build_app(daemon.context).routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert reported == routes


def test_every_answer_is_as_the_document_says(daemon: Served) -> None:
    document, token = document_of(daemon), daemon.token(Scope.ADMIN)
    daemon.token(Scope.READ)
    order = sorted(api_operations(), key=lambda op: op.unique_id in ("cancelJob", "revokeToken"))
    for operation in order:
        status, answer, _ = request(
            daemon, method_of(operation), target_of(operation), token=token, body=body_of(operation)
        )
        if operation.unique_id == "reject":
            assert status == 409, answer
        else:
            assert status == (operation.status_code or 200), (operation.unique_id, answer)
        responses = document["paths"][operation.path][method_of(operation).lower()]["responses"]
        (content,) = responses[str(status)]["content"].values()
        check(document, content["schema"], answer)


def check(document: Mapping[str, Any], schema: Mapping[str, Any], answer: object) -> None:
    whole = {**schema, "components": document["components"]}
    errors = [error.message for error in Draft202012Validator(whole).iter_errors(answer)]
    assert not errors


def test_the_schema_check_finds_a_wrong_answer(daemon: Served) -> None:
    document = document_of(daemon)
    schema = {"$ref": "#/components/schemas/ModeResponse"}
    check(document, schema, {"mode": "observe"})
    with pytest.raises(AssertionError):
        check(document, schema, {"mode": "other"})
    with pytest.raises(AssertionError):
        check(document, schema, {"mode": "observe", "more": 1})


def test_without_a_token_only_health_and_the_document_are_reported(daemon: Served) -> None:
    before = daemon.changes()
    for operation in api_operations():
        for token in (None, "", "costopt_0_0", "x" * 5000):
            status, answer, response = request(
                daemon,
                method_of(operation),
                target_of(operation),
                token=token,
                body=body_of(operation),
            )
            if operation.scope is None:
                assert status == 200
            else:
                assert (status, response.headers["WWW-Authenticate"]) == (
                    401,
                    'Bearer realm="costopt"',
                )
                assert answer["detail"]
    assert daemon.changes() == before
    assert request(daemon, "GET", "/metrics")[0] == 401


def test_whatever_changes_something_needs_more_than_read(daemon: Served) -> None:
    before = daemon.changes()
    by_scope = {scope: daemon.token(scope) for scope in Scope}
    for operation in api_operations():
        if method_of(operation) != "GET":
            assert operation.scope in (Scope.SUBMIT, Scope.ADMIN), operation.unique_id
        for held, token in by_scope.items():
            order = list(Scope)
            if operation.scope and order.index(held) < order.index(operation.scope):
                status, answer, _ = request(
                    daemon,
                    method_of(operation),
                    target_of(operation),
                    token=token,
                    body=body_of(operation),
                )
                assert status == 403, operation.unique_id
                assert operation.scope.value in answer["detail"]
    assert daemon.changes() == before


def test_a_token_of_another_tenant_sees_and_changes_nothing_of_a_job(daemon: Served) -> None:
    """``fill`` gave job one, of tenant default, a node, a decision, a log, a proposal, an alert."""
    daemon.submit("mine", tenant="blue")
    daemon.board.tick_failure = "an event of job one cannot be read"
    before = daemon.changes()
    token = daemon.token(Scope.SUBMIT, tenant="blue")
    for operation in api_operations():
        if operation.scope in (None, Scope.ADMIN):
            continue
        status, answer, _ = request(
            daemon, method_of(operation), target_of(operation), token=token, body=body_of(operation)
        )
        named = [field.name for field in operation.dependant.path_params]
        if operation.unique_id in ("submitJob", "planJob"):
            assert (status, "of tenant 'default'" in answer["detail"]) == (403, True)
        elif named:
            assert status == 404, operation.unique_id
        elif operation.by_tenants:
            assert status == 200, operation.unique_id
            reported = json.dumps(answer)
            assert not any(each in reported for each in ('"one"', "i-1", "p-1", "job one")), (
                operation.unique_id
            )
        else:
            assert (status, "'blue'" in answer["detail"]) == (403, True)
    assert daemon.changes() == before
    for path in ("/metrics", "/v1/events", "/v1/changes"):
        assert request(daemon, "GET", path, token=token)[0] == 403
    reported = request(daemon, "GET", "/v1/jobs", token=token)[1]
    assert [row["submission"]["name"] for row in reported["jobs"]] == ["mine"]


def test_a_token_of_the_jobs_own_tenant_steers_it(daemon: Served) -> None:
    client = DaemonClient(parse_address(daemon.url), daemon.token(Scope.SUBMIT, tenant="default"))
    assert {row["submission"]["name"] for row in client.get("jobs")["jobs"]} == {"one", "two"}
    assert client.get("jobs", "one")["nodes"][0]["node_id"] == "i-1"
    assert client.get("jobs", "one", "logs")["text"] == "step 1\nstep 2\n"
    assert client.get("decisions", "one-d1")["decision"]["job"] == "one"
    assert [node["node_id"] for node in client.get("fleet")["nodes"]] == ["i-1"]
    assert [each["id"] for each in client.get("proposals")["proposals"]] == ["p-1"]
    assert [each["job"] for each in client.get("alerts")["alerts"]] == ["one"]
    assert client.send("POST", "jobs", "one", "pause")["desired_state"] == "paused"
    assert client.send("POST", "jobs", body={"job": JOB.format(name="new")})["name"] == "new"


def test_a_token_of_a_tenant_is_not_an_admins(daemon: Served) -> None:
    body = {"name": "boss", "scopes": ["admin"], "tenant": "blue"}
    with pytest.raises(ApiError, match="'blue'") as refusal:
        daemon.local.send("POST", "tokens", body=body)
    assert refusal.value.status == 409
    made = daemon.local.send("POST", "tokens", body=body | {"scopes": ["read"]})
    assert made["tenant"] == "blue"
    (listed,) = daemon.local.get("tokens")["tokens"]
    assert (listed["name"], listed["tenant"]) == ("boss", "blue")
    assert {"read", "blue"} <= set(daemon.registry.changes()[-1][1].detail.split())


def test_a_browsers_cookie_looks_but_changes_nothing(daemon: Served) -> None:
    plain = daemon.token(Scope.ADMIN)
    badge = daemon.tokens.session_of(plain)
    assert (
        request(daemon, "GET", "/v1/mode", headers={"Cookie": f"{SESSION_COOKIE}={badge}"})[0]
        == 200
    )
    body = b'{"mode": "enforce"}'
    for known in (badge, plain):
        cookie = {"Cookie": f"{SESSION_COOKIE}={known}"}
        assert request(daemon, "PUT", "/v1/mode", headers=cookie, body=body)[0] == 401
    assert request(daemon, "PUT", "/v1/mode", token=badge, body=body)[0] == 401
    assert (
        request(daemon, "GET", "/v1/mode", headers={"Cookie": f"{SESSION_COOKIE}={plain}"})[0]
        == 401
    )
    assert daemon.service.mode() is Mode.OBSERVE


def test_a_revoked_token_is_worthless_at_once(daemon: Served) -> None:
    client = daemon.bearer(Scope.READ)
    client.get("mode")
    daemon.local.send("DELETE", "tokens", "t0")
    with pytest.raises(ApiError) as refusal:
        client.get("mode")
    assert refusal.value.status == 401


def test_the_local_socket_is_its_owners_alone_and_needs_no_token(daemon: Served) -> None:
    mode = daemon.socket_path.stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    daemon.local.send("PUT", "mode", body={"mode": "recommend"})
    assert daemon.service.mode() is Mode.RECOMMEND
    (change,) = daemon.changes()
    assert change.who.startswith("local")


def test_a_job_goes_in_and_is_steered(daemon: Served) -> None:
    client = daemon.bearer(Scope.SUBMIT)
    taken = client.send("POST", "jobs", body={"job": JOB.format(name="new"), "priority": 3})
    assert (taken["name"], taken["priority"], taken["submitted_by"]) == ("new", 3, "t0")
    known = daemon.registry.submission("new")
    assert known is not None
    assert known.workdir == str(daemon.context.folders[0])
    assert "kind: policy" in known.policy_document
    for verb, intent in (
        ("pause", DesiredState.PAUSED),
        ("resume", DesiredState.RUN),
        ("cancel", DesiredState.CANCELLED),
    ):
        assert client.send("POST", "jobs", "new", verb)["desired_state"] == intent.value
    with pytest.raises(ApiError, match="'new'") as refusal:
        client.send("POST", "jobs", "new", "resume")
    assert (refusal.value.status, refusal.value.exit_code) == (409, 2)


def refusal_of(client: DaemonClient, body: Mapping[str, object]) -> ApiError:
    with pytest.raises(ApiError) as refusal:
        client.send("POST", "jobs", body=body)
    return refusal.value


def test_a_wrong_job_is_refused_with_places(daemon: Served) -> None:
    client = daemon.bearer(Scope.SUBMIT)
    text = JOB.format(name="new").replace("deadline", "deadlin")
    refusal = refusal_of(client, {"job": text})
    assert refusal.status == 422
    assert "job.yaml:5:1: deadlin: " in refusal.message
    assert "'deadline'" in refusal.message
    assert refusal_of(client, {"job": JOB.format(name="one")}).status == 409
    assert refusal_of(client, {"job": JOB.format(name="x"), "policy": "nope"}).status == 422
    unsafe = "!!python/object/apply:os.system ['touch /tmp/costopt-was-here']"
    assert refusal_of(client, {"job": unsafe}).status == 422
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(12)
    )
    assert refusal_of(client, {"job": bomb}).status == 422
    assert not Path("/tmp/costopt-was-here").exists()
    assert [each.name for each in daemon.registry.submissions()] == ["one", "two"]


@pytest.mark.parametrize(
    ("workdir", "change"),
    [
        ("/etc", ""),
        ("{folder}/../..", ""),
        ("{folder}/link", ""),
        ("", "workdir: /etc\n"),
        ("", "workdir: ../../..\n"),
        ("", "workdir: ~/\n"),
        ("", "checkpoint.uri"),
    ],
)
def test_a_job_from_elsewhere_stays_in_its_folders(
    daemon: Served, workdir: str, change: str
) -> None:
    folder = daemon.context.folders[0]
    (folder / "link").symlink_to("/etc")
    text = JOB.format(name="new")
    if change == "checkpoint.uri":
        text = text.replace('"s3://bucket/new"', '"file:///var/lib/other"')
    else:
        text += change
    body = {"job": text, "workdir": workdir.format(folder=folder)}
    refusal = refusal_of(daemon.bearer(Scope.SUBMIT), body)
    assert refusal.status == 422
    field = "checkpoint.uri" if change == "checkpoint.uri" else "workdir"
    assert refusal.message.startswith(f"{field}: ")
    assert daemon.local.send("POST", "jobs", body=body)["name"] == "new"


@pytest.mark.parametrize(
    ("body", "subject"),
    [
        (b"", "the body "),
        (b"[]", "the body "),
        (b'{"job": 1}', "job: "),
        (b"{}", "job: "),
        (b'{"job": "x", "more": 1}', "more: "),
        (b'{"job": "x", "priority": 1001}', "priority: "),
        (b'{"job": "x", "priority": true}', "priority: "),
        (b'{"job": "x", "priority": 1e400}', "priority: "),
        (b'{"job": "a\\u0000b"}', "job: "),
        (b'{"job": "\\ud800"}', "job: "),
        (b'{"job": "x", "workdir": "relative"}', "workdir: "),
        (b'{"\\ud800": 1, "job": "x"}', "the body "),
        (b"[" * 100_000, "the body "),
        (b"\xff\xfe", "the body "),
        (b'{"job": ' + b"1" * 5000 + b"}", "the body "),
    ],
    ids=range(15),
)
def test_a_malformed_body_is_refused(standing: Served, body: bytes, subject: str) -> None:
    token = standing.token(Scope.SUBMIT)
    status, answer, _ = request(standing, "POST", "/v1/jobs", token=token, body=body)
    assert (status, answer["exit_code"]) == (422, 2)
    assert answer["detail"].startswith(subject)


def test_an_oversized_body_is_refused(standing: Served) -> None:
    token = standing.token(Scope.SUBMIT)
    body = json.dumps({"job": "x" * MAX_BODY_BYTES}).encode()
    status, answer, _ = request(standing, "POST", "/v1/jobs", token=token, body=body)
    assert (status, "2 MiB" in answer["detail"]) == (413, True)
    text = {"Content-Type": "text/plain"}
    assert request(standing, "POST", "/v1/jobs", token=token, body=b"x", headers=text)[0] == 415


@pytest.mark.parametrize(
    "target",
    [
        "/v1/jobs/..%2f..%2fetc%2fpasswd",
        "/v1/jobs/../../etc/passwd",
        "/v1/jobs/one/logs/../../../etc/passwd",
        "/v1/jobs/.hidden",
        "/v1/jobs/%00",
        "/v1/jobs/a%0d%0aX: 1",
        "/v1/jobs/" + "x" * 64,
        "/v1/jobs/nope",
        "/v1/jobs/nope/events",
        "/v1/jobs/nope/logs",
        "/v1/decisions/one-d9",
        "/v1/decisions/nope",
        "/nowhere",
    ],
)
def test_what_is_not_there_is_a_404(standing: Served, target: str) -> None:
    safe = target.replace(" ", "%20")
    status, answer, response = request(standing, "GET", safe, token=standing.token(Scope.READ))
    assert (status, answer["status"]) == (404, 404)
    assert response.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    "node", ["../../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", ".."]
)
def test_a_logs_node_is_not_a_path(standing: Served, node: str) -> None:
    token = standing.token(Scope.READ)
    status, answer, _ = request(standing, "GET", f"/v1/jobs/one/logs?node={node}", token=token)
    assert (status, answer["detail"].partition(": ")[0]) == (422, "node")


@pytest.mark.parametrize(
    "query", ["after=-1", "after=x", "after=", "after=1&after=2", "limit=0", "limit=1001", "x=1"]
)
def test_a_malformed_query_is_refused(standing: Served, query: str) -> None:
    token = standing.token(Scope.READ)
    assert request(standing, "GET", f"/v1/jobs/one/events?{query}", token=token)[0] == 422


@pytest.mark.slow
def test_events_come_in_pages(daemon: Served) -> None:
    client = daemon.bearer(Scope.READ)
    whole = client.get("events")["events"]
    pages, after = [], 0
    while page := client.get("events", after=after, limit=1)["events"]:
        pages += page
        after = page[-1]["seq"]
    assert pages == whole
    assert [each["event"]["kind"] for each in whole] == [
        "DecisionMade", "NodeLaunched", "GuardTripped"
    ]  # fmt: skip


def test_a_database_that_is_away_is_a_503_and_an_accident_a_500_without_particulars(
    daemon: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = daemon.token(Scope.READ)

    def away() -> None:
        raise LedgerError("the server does not answer", hint="start it")

    monkeypatch.setattr(daemon.service.registry, "halted", away)
    status, answer, _ = request(daemon, "GET", "/v1/halt", token=token)
    assert (status, answer["detail"], answer["hint"]) == (
        503, "the server does not answer", "start it"
    )  # fmt: skip

    def broken() -> None:
        raise KeyError("secret")

    monkeypatch.setattr(daemon.service, "mode", broken)
    status, answer, _ = request(daemon, "GET", "/v1/mode", token=token)
    assert status == 500
    assert "secret" not in json.dumps(answer)


def test_who_is_not_known_hears_nothing_of_the_database(
    daemon: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(plain: str) -> None:
        raise LedgerError(f"postgresql://secret@host does not know {plain}")

    monkeypatch.setattr(daemon.context.tokens, "token_of", away)
    status, answer, _ = request(daemon, "GET", "/v1/halt", token="costopt_0_0")
    assert status == 503
    assert "secret" not in json.dumps(answer)


def test_no_cache_keeps_an_answer_and_no_browser_guesses_what_it_is(daemon: Served) -> None:
    token = daemon.token(Scope.ADMIN)
    for target in ("/v1/jobs", "/v1/jobs/nope", "/nowhere", "/metrics", "/healthz"):
        _, _, response = request(daemon, "GET", target, token=token)
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["X-Content-Type-Options"] == "nosniff"


def test_health_says_whether_the_loop_goes_on(tmp_path: Path) -> None:
    with served(tmp_path, fill=False) as daemon:
        assert request(daemon, "GET", "/healthz")[:2] == (503, {"alive": False})
        assert request(daemon, "GET", "/readyz")[:2] == (503, {"ready": False})
        daemon.fill()
        assert request(daemon, "GET", "/healthz")[:2] == (200, {"alive": True})
        assert request(daemon, "GET", "/readyz")[:2] == (200, {"ready": True})


def test_a_method_that_is_not_there_is_a_405_that_names_those_that_are(daemon: Served) -> None:
    status, _, response = request(daemon, "PATCH", "/v1/jobs")
    assert status == 405
    allowed = {each.strip() for each in response.headers["Allow"].split(",")}
    assert allowed >= {"GET", "POST"}


def test_every_path_parameter_of_an_operation_is_declared(daemon: Served) -> None:
    for operation in api_operations():
        in_path = {field.name for field in operation.dependant.path_params}
        assert in_path == {part[1:-1] for part in operation.path.split("/") if part[:1] == "{"}
