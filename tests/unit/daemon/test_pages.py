"""The daemon's pages: who may look, what they say, and that nobody's words become markup."""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest

from costopt.daemon.http.auth import SESSION_COOKIE, WRONG_TOKEN_DELAY_S
from costopt.daemon.http.server import bind_listeners, serve_api
from costopt.daemon.pages import layout
from costopt.daemon.pages.layout import PLACES
from costopt.daemon.pages.routes import safe_redirect_path
from costopt.daemon.reader import TenantReader
from costopt.daemon.settings import DaemonSettings
from costopt.daemon.shared_state import BudgetUse
from costopt.domain.account import UNLIMITED
from costopt.domain.control import Scope
from costopt.domain.errors import LedgerError
from costopt.formatting import second_text
from costopt.ledger.job_account import JobAccount
from costopt.ledger.run_view import RunView
from costopt.render.reports.run_charts import timeline
from costopt.render.svg import ResponsiveChart
from costopt.views.cost import CostSums
from tests.support.daemon_pages import (
    FINISHED,
    HOSTILE,
    NOW,
    PAUSED,
    RUNNING,
    STRANGE,
    Shown,
    shown,
)
from tests.support.page_cells import PageCells

PAGES = (
    *(path for path, _ in PLACES),
    f"/jobs/{RUNNING}",
    f"/jobs/{FINISHED}",
    f"/jobs/{PAUSED}",
    f"/jobs/{quote(STRANGE, safe='')}",
    f"/decisions/{RUNNING}-d9",
    f"/decisions/{quote(STRANGE, safe='')}-d9",
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    with shown(tmp_path_factory.mktemp("daemon")) as each:
        yield each


@pytest.fixture(scope="module")
def cookie(daemon: Shown) -> str:
    return daemon.cookie()


class Got:
    """An answer."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.text = response.read().decode()


def get(daemon: Shown, target: str, cookie: str = "", **headers: str) -> Got:
    return ask(daemon, "GET", target, None, cookie, **headers)


def ask(
    daemon: Shown, method: str, target: str, body: str | None, cookie: str = "", **headers: str
) -> Got:
    connection = http.client.HTTPConnection(daemon.url.removeprefix("http://"), timeout=20)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(
            method, target, body, {**({"Cookie": cookie} if cookie else {}), **named}
        )
        return Got(connection.getresponse())
    finally:
        connection.close()


def enter(daemon: Shown, body: str, **headers: str) -> Got:
    sent = {"Content_Type": "application/x-www-form-urlencoded", **headers}
    return ask(daemon, "POST", "/login", body, **sent)


class Elements(HTMLParser):
    """Every element with its attributes, and the text without markup."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.said.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).split())


def text_of(daemon: Shown, target: str, cookie: str) -> str:
    got = get(daemon, target, cookie)
    assert got.status == 200
    return Elements(got.text).text


def cells_of(daemon: Shown, target: str, cookie: str) -> PageCells:
    got = get(daemon, target, cookie)
    assert got.status == 200
    return PageCells(got.text)


@pytest.mark.parametrize("path", PAGES)
def test_without_a_token_every_page_leads_to_the_form_for_one(daemon: Shown, path: str) -> None:
    for given in ("", f"{SESSION_COOKIE}=wrong"):
        got = get(daemon, path, given)
        assert (got.status, got.headers["Location"]) == (303, f"/login?then={quote(path)}")
        assert not got.text


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES)
def test_nobodys_words_become_markup(daemon: Shown, cookie: str, path: str) -> None:
    got = get(daemon, path, cookie)
    assert got.status == 200
    page = Elements(got.text)
    tags = {tag for tag, _ in page.found}
    assert not tags & {"script", "img", "iframe", "object", "embed", "base"}
    for _, attributes in page.found:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("href", "src", "action"):
            assert not re.match(r"\s*(https?:|//|javascript:|data:)", attributes.get(name) or "")


@pytest.mark.slow
def test_hostile_words_are_shown_as_they_are(daemon: Shown, cookie: str) -> None:
    everywhere = ["/", "/market", "/guards", "/proposals", "/ledger", "/jobs"]
    for path in [*everywhere, PAGES[-1], PAGES[-3]]:
        assert " ".join(HOSTILE.split()) in text_of(daemon, path, cookie), path


@pytest.mark.parametrize("path", PAGES)
def test_a_table_names_its_columns_and_rows(daemon: Shown, cookie: str, path: str) -> None:
    found = Elements(get(daemon, path, cookie).text).found
    headers = [attributes for tag, attributes in found if tag == "th"]
    assert headers
    assert {each["scope"] for each in headers} == {"col", "row"}
    ids = [attributes["id"] for _, attributes in found if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = [a["aria-labelledby"] for _, a in found if "aria-labelledby" in a]
    assert set(named) <= set(ids)


def test_answers_cannot_be_framed_kept_or_extended(daemon: Shown, cookie: str) -> None:
    for path in ["/", "/login", "/jobs/none"]:
        got = get(daemon, path, cookie)
        policy = got.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "script-src" not in policy
        assert got.headers["Cache-Control"] == "no-store"
        assert got.headers["X-Content-Type-Options"] == "nosniff"


def test_a_token_opens_the_page_that_was_asked_for(daemon: Shown) -> None:
    got = enter(daemon, f"token={daemon.token()}&then=/jobs/{RUNNING}")
    assert (got.status, got.headers["Location"]) == (303, f"/jobs/{RUNNING}")
    kept = got.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in kept.split(";")}
    assert "Secure" not in kept
    assert get(daemon, "/", kept.partition(";")[0]).status == 200
    over_tls = enter(daemon, f"token={daemon.token()}", X_Forwarded_Proto="https")
    assert "Secure" in over_tls.headers["Set-Cookie"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("token=wrong", 401),
        ("token=", 401),
        ("", 401),
        ("token=" + "x" * 9000, 400),
        ("&".join(f"a{i}=1" for i in range(20)), 400),
        ("token=%ff%fe", 401),
    ],
)
def test_a_wrong_token_is_refused(daemon: Shown, body: str, status: int) -> None:
    got = enter(daemon, body)
    assert got.status == status
    assert "Set-Cookie" not in got.headers
    assert 'role="alert"' in got.text
    assert enter(daemon, "token=x", Content_Type="text/plain").status == 400


def test_another_sites_form_neither_brings_a_token_nor_forgets_one(daemon: Shown) -> None:
    for site in ("cross-site", "same-site"):
        got = enter(daemon, f"token={daemon.token()}", Sec_Fetch_Site=site)
        assert (got.status, got.headers["Set-Cookie"]) == (400, None)
        left = ask(daemon, "POST", "/logout", "", Sec_Fetch_Site=site)
        assert left.headers["Set-Cookie"] is None
    for site in ("same-origin", "none"):
        assert enter(daemon, f"token={daemon.token()}", Sec_Fetch_Site=site).status == 303


def test_a_token_is_never_repeated(daemon: Shown) -> None:
    plain = daemon.token()
    page = get(daemon, "/", daemon.cookie(plain))
    assert page.status == 200
    assert plain not in page.text
    assert plain not in enter(daemon, f"token={plain}").headers["Set-Cookie"]
    assert "SECRET" not in enter(daemon, "token=SECRET").text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 303),
        ({"Origin": "http://{host}"}, 303),
        ({"Origin": "https://costopt.example", "X_Forwarded_Host": "costopt.example"}, 303),
        ({"Origin": "http://evil.example"}, 400),
        ({"Origin": "http://evil.example", "Sec_Fetch_Site": "same-origin"}, 400),
        ({"Origin": "null"}, 400),
        ({"Sec_Fetch_Site": "cross-site"}, 400),
    ],
)
def test_a_form_of_another_origin_logs_no_one_in(
    daemon: Shown, headers: dict[str, str], status: int
) -> None:
    plain = daemon.tokens.add(f"origin{len(daemon.tokens.tokens())}", [Scope.READ], "test", NOW)
    host = daemon.url.removeprefix("http://")
    sent = {name: value.format(host=host) for name, value in headers.items()}
    assert enter(daemon, f"token={plain}", **sent).status == status


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Forwarded_Proto": "https"},
        {"X_Forwarded_Proto": "HTTPS, http"},
        {"Forwarded": 'for=192.0.2.1;proto="https";host=costopt.example'},
        {"Origin": "https://costopt.example", "X_Forwarded_Host": "costopt.example"},
    ],
)
def test_cookies_are_secure_behind_tls(daemon: Shown, headers: dict[str, str]) -> None:
    plain = daemon.tokens.add(f"tls{len(daemon.tokens.tokens())}", [Scope.READ], "test", NOW)
    assert "Secure" in enter(daemon, f"token={plain}", **headers).headers["Set-Cookie"]
    assert "Secure" not in enter(daemon, f"token={plain}").headers["Set-Cookie"]
    cookie = daemon.cookie(plain)
    shown = ask(daemon, "GET", "/?refresh=off", None, cookie, **headers)
    assert "Secure" in shown.headers["Set-Cookie"]


def test_a_wrong_token_is_answered_late(daemon: Shown) -> None:
    began_s = time.monotonic()
    assert enter(daemon, "token=guess").status == 401
    middle_s = time.monotonic()
    assert ask(daemon, "GET", "/v1/jobs", None, Authorization="Bearer guess").status == 401
    assert min(middle_s - began_s, time.monotonic() - middle_s) >= WRONG_TOKEN_DELAY_S


def test_a_revoked_token_shows_nothing_and_forgetting_removes_the_cookie(daemon: Shown) -> None:
    plain = daemon.tokens.add("gone", [Scope.READ], "test", NOW)
    kept = daemon.cookie(plain)
    assert get(daemon, "/", kept).status == 200
    daemon.tokens.revoke("gone", "test", NOW)
    assert get(daemon, "/", kept).status == 303
    left = ask(daemon, "POST", "/logout", "", kept)
    assert (left.status, left.headers["Location"]) == (303, "/login")
    assert "Max-Age=0" in left.headers["Set-Cookie"]
    assert get(daemon, "/logout", kept).status == 405


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("/jobs", "/jobs"),
        ("/jobs/a-b_c.1", "/jobs/a-b_c.1"),
        ("/jobs/a%22", "/jobs/a%22"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/jobs\r\nSet-Cookie: a=b", "/"),
        ("/jobs\n", "/"),
        ("", "/"),
    ],
)
def test_entering_leads_nowhere_else(path: str, leads_to: str) -> None:
    assert safe_redirect_path(path) == leads_to


@pytest.mark.slow
def test_pages_change_nothing(daemon: Shown, cookie: str) -> None:
    before = daemon.registry.changes()
    for path in PAGES:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert ask(daemon, method, path, "", cookie).status == 405
        get(daemon, path, cookie)
    assert daemon.registry.changes() == before


@pytest.mark.parametrize("path", ["/jobs/none", "/decisions/none-d1", "/decisions/none"])
def test_what_is_not_there_is_a_page_that_says_so(daemon: Shown, cookie: str, path: str) -> None:
    got = get(daemon, path, cookie)
    assert got.status == 404
    assert got.headers["Content-Type"].startswith("text/html")
    assert path.rpartition("/")[2] in Elements(got.text).text


def test_a_database_that_is_away_is_a_page_that_says_so(
    daemon: Shown, cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(tenant: str | None) -> None:
        raise LedgerError("the server does not answer", hint="start it")

    monkeypatch.setattr(daemon.service.registry, "submissions", away)
    got = get(daemon, "/ledger", cookie)
    assert got.status == 503
    assert "the server does not answer" in got.text


def test_the_page_reloads_until_it_is_asked_not_to(daemon: Shown, cookie: str) -> None:
    refresh_tag = '<meta http-equiv="refresh" content="30">'
    assert refresh_tag in get(daemon, "/jobs", cookie).text
    off = get(daemon, "/jobs?q=bert&refresh=off", cookie)
    assert refresh_tag not in off.text
    assert 'href="?q=bert&amp;refresh=on"' in off.text
    remembered = off.headers["Set-Cookie"].partition(";")[0]
    assert remembered == "costopt_refresh=off"
    assert refresh_tag not in get(daemon, "/market", f"{cookie}; {remembered}").text
    assert refresh_tag in get(daemon, "/market?refresh=on", f"{cookie}; {remembered}").text


def test_the_fleet_tells_what_runs_and_what_it_costs(daemon: Shown, cookie: str) -> None:
    page = cells_of(daemon, "/", cookie)
    assert page.tiles["Nodes"] == "3"
    assert page.tiles["Price"] == "$59.70/h"
    nodes = page.rows["nodes"]
    assert nodes["gce-c1"]["state"] == "running"
    assert nodes["gce-c2"]["interrupts_at"] == second_text(NOW + timedelta(seconds=100))
    assert nodes["gce-c1"]["interrupts_at"] == ""
    assert "i-0orphan" in page.rows["orphans"]
    alerts = page.rows["alerts"].values()
    assert [each["kind"] for each in alerts if each["job"] == RUNNING] == ["budget"]


def test_jobs_stand_by_their_slack_and_those_that_ended_last(daemon: Shown, cookie: str) -> None:
    page = cells_of(daemon, "/jobs", cookie)
    assert list(page.rows["open"]) == [RUNNING, STRANGE, PAUSED]
    desired = {name: row["desired_state"] for name, row in page.rows["open"].items()}
    assert desired == {RUNNING: "", STRANGE: "", PAUSED: "paused"}
    assert {name: row["on_time"] for name, row in page.rows["ended"].items()} == {FINISHED: "yes"}
    assert "slack_s" not in page.columns["ended"]
    assert set(page.rows["held"]) == {PAUSED, STRANGE}


def test_jobs_are_drawn_over_time(daemon: Shown, cookie: str) -> None:
    drawn = get(daemon, "/jobs", cookie).text
    assert drawn.count('<svg class="plot"') == 2
    for name in (RUNNING, FINISHED, PAUSED):
        assert drawn.count(f">{name}</text>") == 2
    narrowed = get(daemon, "/jobs?q=vision", cookie).text
    assert f">{PAUSED}</text>" in narrowed
    assert f">{RUNNING}</text>" not in narrowed


@pytest.mark.parametrize("path", ["/", "/ledger"])
def test_each_day_of_each_tenant_is_drawn(daemon: Shown, cookie: str, path: str) -> None:
    text = text_of(daemon, path, cookie)
    sums = cells_of(daemon, "/ledger", cookie).rows["tenants"]
    # every event of the fixture lies on the day that it shows
    for figure in ("usd_micros", "wh"):
        assert f"research: {sums['research'][figure]}" in text
    assert get(daemon, path, cookie).text.count('<svg class="plot"') == 4


def test_a_tenants_days_leave_out_every_other(daemon: Shown) -> None:
    cookie = daemon.cookie(daemon.token(tenant="vision"))
    for path in ("/", "/ledger", "/jobs"):
        text = text_of(daemon, path, cookie)
        assert "research" not in text
        assert RUNNING not in text


def test_budgets_are_bars_of_what_is_spent(tmp_path: Path) -> None:
    with shown(tmp_path, fill=False) as daemon:
        uses = (
            BudgetUse(None, "dollars per calendar month", 2_500.0, 10_000.0),
            BudgetUse("research", "dollars in all", 80.0, 50.0),
            BudgetUse("vision", "dollars in all", 0.0, 0.0),
        )
        daemon.board.publish(replace(daemon.board.snapshot, budgets=uses), 0.02)
        for path in ("/ledger", "/guards"):
            got = get(daemon, path, daemon.cookie()).text
            assert {name: row["spent"] for name, row in PageCells(got).rows["budgets"].items()} == {
                "account, dollars per calendar month": "$2,500.00 of $10,000.00 (25 %)",
                "tenant research, dollars in all": "$80.00 of $50.00 (160 %)",
                "tenant vision, dollars in all": "$0.00 of $0.00 (100 %)",
            }
            assert re.findall(r'class="fill-(\w+)" style="width: ([\d.]+)%"', got) == [
                ("plain", "25.0"),
                ("bad", "100.0"),
                ("bad", "100.0"),
            ]
        own = daemon.cookie(daemon.token(tenant="vision"))
        assert list(cells_of(daemon, "/guards", own).rows["budgets"]) == [
            "tenant vision, dollars in all"
        ]


def test_the_last_decisions_of_ended_jobs_stay(daemon: Shown, cookie: str) -> None:
    page = cells_of(daemon, "/decisions", cookie)
    assert set(page.rows["open"]) == {RUNNING, STRANGE}
    assert page.rows["open"][RUNNING]["decision"] == f"{RUNNING}-d9"
    assert list(page.rows["ended"]) == [FINISHED]
    only = cells_of(daemon, f"/decisions?q={FINISHED}", cookie)
    assert only.empty == ["open"]
    assert list(only.rows["ended"]) == [FINISHED]


def test_a_filter_narrows_the_rows(daemon: Shown, cookie: str) -> None:
    text = text_of(daemon, "/jobs?q=VISION", cookie)
    assert PAUSED in text
    assert RUNNING not in text
    narrowed = get(daemon, "/?q=nothing+like+it", cookie).text
    assert narrowed.count("<tr") < get(daemon, "/", cookie).text.count("<tr")
    market = text_of(daemon, "/market?q=gcp+spot", cookie)
    assert "a3-highgpu-8g" in market
    assert "p5.48xlarge" not in market


def test_a_filters_words_come_back_escaped(daemon: Shown, cookie: str) -> None:
    found = Elements(get(daemon, f"/jobs?q={quote(HOSTILE)}", cookie).text).found
    values = [a["value"] for tag, a in found if tag == "input"]
    assert values == [HOSTILE]


def test_a_job_shows_its_figures_forecast_and_decisions(daemon: Shown, cookie: str) -> None:
    got = get(daemon, f"/jobs/{RUNNING}", cookie)
    text = Elements(got.text).text
    for said in (
        "2 h 30 min",
        "Slack modelled 1 h 30 min",
        "Spent measured $153.56 51 %",
        "Energy modelled 50.7 kWh",
        "$71.20",
        "$224.76",
        # 12,840 of 33,000 steps are left at 2 steps per second
        "2026-03-02 13:18:00",
        "2026-03-02 12:30:00",
        "us-east-2a",
        "$500.00 no limit",
        "no limit $64.00",
    ):
        assert said in text, said
    assert got.text.count('<svg class="plot"') == 8


def test_a_policy_that_cannot_be_read_is_reported_as_that(tmp_path: Path) -> None:
    with shown(tmp_path) as daemon:
        known = daemon.registry.submission(RUNNING)
        assert known is not None
        daemon.registry.submit(replace(known, name="old", policy_document="kind: other"))
        assert "policy.yaml" in text_of(daemon, "/jobs/old", daemon.cookie())


def test_documents_are_not_shown_to_readers(daemon: Shown, cookie: str) -> None:
    got = get(daemon, f"/jobs/{RUNNING}", cookie)
    assert "kind: policy" not in got.text


def test_a_decision_tells_what_else_was_weighed_and_what_followed(
    daemon: Shown, cookie: str
) -> None:
    text = text_of(daemon, f"/decisions/{RUNNING}-d9", cookie)
    assert "$71.20 $0.00" in text
    assert "$160.10 $88.90" in text
    assert "wait – –" in text
    strange = text_of(daemon, f"/decisions/{quote(STRANGE, safe='')}-d9", cookie)
    assert "Subsequent events" in strange


def test_the_market_tells_prices_hazards_and_ages(daemon: Shown, cookie: str) -> None:
    rows = list(cells_of(daemon, "/market", cookie).rows["offers"].values())
    assert [row["price"] for row in rows] == ["$19.90", "$21.40", "$24.70", "$55.04", "unknown"]
    cheapest = rows[0]
    assert cheapest["price_age_s"] == "1 h 42 min"
    assert cheapest["hazard"] == "0.05 (0.02–0.11)"
    assert cheapest["price_basis"].startswith("measured")
    assert rows[-1]["note"].startswith("no price")


def test_the_ledger_adds_up(daemon: Shown, cookie: str) -> None:
    page = cells_of(daemon, "/ledger", cookie)
    summaries = [status.summary for status in TenantReader(daemon.service).jobs()]
    assert page.tiles["Spent"] == f"${sum(s.usd_micros for s in summaries) / 1e6:,.2f}"
    assert page.tiles["Saved"] == f"${sum(s.saved_usd_micros or 0 for s in summaries) / 1e6:,.2f}"
    by_tenant = page.rows["tenants"].values()
    assert sum(int(row["jobs"]) for row in by_tenant) == len(page.rows["jobs"]) == 4


def test_emissions_name_their_signal_and_do_not_mix() -> None:
    one = JobAccount("one").summary(NOW)
    average = replace(one, gco2e=2000.0, carbon_signal="average", market_based_gco2e=100.0)
    marginal = replace(one, gco2e=3000.0, carbon_signal="marginal")
    texts = [
        CostSums.of(jobs).emissions_text
        for jobs in ([average, average], [marginal], [average, marginal], [])
    ]
    assert texts == ["4 kg", "3 kg marginal", "unknown: average and marginal", "0 g"]
    assert CostSums.of([average, average]).market_based_gco2e == 200.0
    assert CostSums.of([average, marginal]).market_based_gco2e is None


def test_guards_tell_mode_limits_and_what_people_said(daemon: Shown, cookie: str) -> None:
    page = cells_of(daemon, "/guards", cookie)
    assert page.tiles["Mode"] == "observe"
    assert page.rows["guards"]["dollars per calendar month"]["value"] == "$10,000.00"
    assert page.rows["guards"]["nodes"]["value"] == "64"
    assert page.rows["tenants"]["research"]["weight"] == "2"
    assert page.rows["tenants"]["research"]["max_nodes"] == "16"
    ran = {key: page.rows["tasks"]["prices aws"][key] for key in ("ok", "failed", "missed")}
    assert ran == {"ok": "0", "failed": "1", "missed": "0"}
    actions = {(row["what"], row["subject"]) for row in page.rows["changes"].values()}
    assert ("paused", PAUSED) in actions


def test_a_running_daemon_serves_its_pages(tmp_path: Path) -> None:
    with shown(tmp_path) as daemon:
        settings = DaemonSettings(tmp_path, listen="127.0.0.1:0")
        with (
            bind_listeners(settings) as listeners,
            serve_api(listeners, daemon.service, daemon.tokens, settings) as (local, url),
        ):
            assert get(replace(daemon, url=url), "/jobs").status == 303
            connection = http.client.HTTPConnection("localhost")
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(local.removeprefix("unix:"))
            connection.request("GET", "/jobs")
            page = Got(connection.getresponse())
            connection.close()
    assert page.status == 200, "the socket's owner needs no token"
    assert "Log out" not in page.text


@pytest.mark.slow
def test_a_halt_stands_on_every_page(tmp_path: Path) -> None:
    with shown(tmp_path) as daemon:
        daemon.service.halt(HOSTILE, "mara")
        cookie = daemon.cookie()
        for path, _ in PLACES:
            assert "mara" in text_of(daemon, path, cookie)


def test_a_daemon_without_jobs_has_small_empty_sections(tmp_path: Path) -> None:
    with shown(tmp_path, fill=False, account=UNLIMITED) as daemon:
        cookie = daemon.cookie()
        empty = {path: cells_of(daemon, path, cookie).empty for path, _ in PLACES}
        for path, _ in PLACES:
            assert '<svg class="plot"' not in get(daemon, path, cookie).text
    assert empty == {
        "/": ["alerts", "nodes", "tenants", "orphans"],
        "/jobs": ["held", "open", "ended"],
        "/market": ["silent", "offers"],
        "/decisions": ["open", "ended"],
        "/ledger": ["budgets", "tenants", "jobs"],
        "/guards": ["budgets", "tenants", "held", "tasks"],
        "/proposals": ["open", "answered"],
    }


def test_a_job_that_no_tick_has_seen_has_a_page(tmp_path: Path) -> None:
    with shown(tmp_path) as daemon:
        fresh = daemon.registry.submission(RUNNING)
        assert fresh is not None
        daemon.registry.submit(replace(fresh, name="fresh"))
        cookie = daemon.cookie()
        text = text_of(daemon, "/jobs/fresh", cookie)
        assert "fresh" in text
        assert '<svg class="plot"' not in get(daemon, "/jobs/fresh", cookie).text
        assert "fresh" in text_of(daemon, "/jobs", cookie)


@pytest.mark.slow
def test_curves_are_drawn_once_per_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    def draw(run: RunView) -> ResponsiveChart:
        drawn.append(run.summary.job)
        return timeline(run)

    monkeypatch.setattr("costopt.daemon.pages.layout.timeline", draw)
    with shown(tmp_path) as daemon:
        stories = layout.ChartCache(daemon.service)
        threads = [threading.Thread(target=stories.of, args=[RUNNING]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert drawn == [RUNNING]
        snapshot = daemon.board.snapshot
        daemon.board.publish(replace(snapshot, now=NOW + timedelta(minutes=1)), 0.1)
        stories.of(RUNNING)
        assert drawn == [RUNNING, RUNNING]


def test_a_job_of_too_many_events_is_reported_without_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "MAX_EVENTS", 50)
    with shown(tmp_path) as daemon:
        text = text_of(daemon, f"/jobs/{RUNNING}", daemon.cookie())
    assert re.search(r"\b50 events", text)
    assert "Slack modelled 1 h 30 min" in text
