"""Bearer tokens: told once, kept as digests, compared in constant time."""

from __future__ import annotations

import hmac
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.domain.control import Scope, Token
from costopt.domain.errors import LedgerError, SpecError
from costopt.registry.registry import SqlRegistry, open_registry
from tests.support.errors import has_code

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def registry(database_place: Path | str) -> Iterator[SqlRegistry]:
    with open_registry(database_place) as opened:
        yield opened


def test_a_token_is_known_by_its_plain_text_alone(registry: SqlRegistry) -> None:
    plain = registry.tokens.add("ci", [Scope.SUBMIT], "ann", AT)
    known = Token("ci", frozenset({Scope.SUBMIT}), AT, "ann")
    assert registry.tokens.token_of(plain) == known
    assert registry.tokens.tokens() == (known,)
    lookup = plain.split("_")[1]
    wrong = [
        "", "costopt", plain[:-1], plain + "0", plain.upper(), f" {plain}", f"costopt_{lookup}_",
        f"costopt_{lookup}", f"costopt__{plain.split('_')[2]}", "costopt_%_%", "costopt_\0_\0",
        "x" * 100_000, f"{plain}_", "тест_тест_тест", "costopt_' OR ''='_x",
    ]  # fmt: skip
    assert [registry.tokens.token_of(text) for text in wrong] == [None] * len(wrong)


def test_a_browsers_badge_is_known_and_is_not_a_token(registry: SqlRegistry) -> None:
    tokens = registry.tokens
    plain = tokens.add("ci", [Scope.ADMIN], "ann", AT)
    badge = tokens.session_of(plain)
    assert tokens.token_of_session(badge) == tokens.token_of(plain)
    assert tokens.token_of(badge) is None
    assert tokens.token_of_session(plain) is None
    assert tokens.token_of_session(tokens.session_of("costopt_0_0")) is None
    assert [tokens.token_of_session(text) for text in ("", "costopt__", badge[:-1])] == [None] * 3
    tokens.revoke("ci", "ann", AT)
    assert tokens.token_of_session(badge) is None


def test_a_token_is_bound_to_a_tenant_and_then_no_admins(registry: SqlRegistry) -> None:
    plain = registry.tokens.add("ci", [Scope.SUBMIT], "ann", AT, "blue")
    known = registry.tokens.token_of(plain)
    assert known is not None
    assert known.tenant == "blue"
    with pytest.raises(SpecError, check=has_code("admin_with_tenant")):
        registry.tokens.add("boss", [Scope.READ, Scope.ADMIN], "ann", AT, "blue")


def test_a_secret_is_long_and_never_the_same(registry: SqlRegistry) -> None:
    plain = {registry.tokens.add(f"t{n}", [Scope.READ], "ann", AT) for n in range(20)}
    assert len({text.split("_")[2] for text in plain}) == 20
    assert {len(bytes.fromhex(text.split("_")[2])) for text in plain} == {32}


def test_nothing_at_rest_is_a_token(tmp_path: Path) -> None:
    path = tmp_path / "registry.sqlite"
    with open_registry(path) as registry:
        plain = registry.tokens.add("ci", [Scope.ADMIN], "ann", AT)
        reported = str(registry.changes())
    secret = plain.split("_")[2]
    assert secret not in reported
    for file in tmp_path.iterdir():
        assert secret.encode() not in file.read_bytes()
        assert bytes.fromhex(secret) not in file.read_bytes()


def test_a_wrong_token_is_compared_as_a_right_one_is(
    registry: SqlRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = registry.tokens.add("ci", [Scope.READ], "ann", AT)
    lengths: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def compared(first: str, second: str) -> bool:
        lengths.append((len(first), len(second)))
        return compare(first, second)

    monkeypatch.setattr(hmac, "compare_digest", compared)
    for text in (plain, f"{plain[:-1]}x", "costopt_0_0", "garbage", ""):
        registry.tokens.token_of(text)
    assert lengths == [(64, 64)] * 5


def test_a_revoked_token_is_none_at_once(registry: SqlRegistry) -> None:
    plain = registry.tokens.add("ci", [Scope.READ], "ann", AT)
    registry.tokens.revoke("ci", "bob", AT)
    assert registry.tokens.token_of(plain) is None
    assert registry.tokens.tokens() == ()
    with pytest.raises(SpecError, check=has_code("unknown_token")):
        registry.tokens.revoke("ci", "bob", AT)
    assert [(c.what, c.who) for _, c in registry.changes()] == [("token", "ann"), ("revoke", "bob")]


def test_a_name_is_given_once_and_a_token_allows_something(registry: SqlRegistry) -> None:
    registry.tokens.add("ci", [Scope.READ], "ann", AT)
    with pytest.raises(SpecError, check=has_code("duplicate")):
        registry.tokens.add("ci", [Scope.ADMIN], "ann", AT)
    with pytest.raises(SpecError, check=has_code("no_scopes")):
        registry.tokens.add("other", [], "ann", AT)


@pytest.mark.parametrize(
    ("mine", "allowed"),
    [
        (Scope.READ, {Scope.READ}),
        (Scope.SUBMIT, {Scope.READ, Scope.SUBMIT}),
        (Scope.ADMIN, set(Scope)),
    ],
)
def test_each_scope_holds_those_before_it(mine: Scope, allowed: set[Scope]) -> None:
    token = Token("t", frozenset({mine}), AT, "ann")
    assert {scope for scope in Scope if token.allows(scope)} == allowed


def test_places_that_hold_no_registry_are_refused_with_advice(tmp_path: Path) -> None:
    def refusal(place: Path) -> str:
        with pytest.raises(LedgerError) as caught:
            open_registry(place)
        assert caught.value.hint
        assert str(place) in caught.value.message
        return caught.value.code

    assert refusal(tmp_path / "missing" / "registry.sqlite") == "SQLITE_CANTOPEN"
    (tmp_path / "notes").write_text("not a database\n" * 100)
    assert refusal(tmp_path / "notes") == "SQLITE_NOTADB"
    path = tmp_path / "registry.sqlite"
    with open_registry(path) as registry, closing(sqlite3.connect(path)) as other:
        registry.tokens.add("ci", [Scope.READ], "ann", AT)
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with (
        pytest.raises(LedgerError, check=has_code("SQLITE_CORRUPT")) as caught,
        open_registry(path) as registry,
    ):
        registry.tokens.tokens()
    assert "costopt daemon restore" in str(caught.value.hint)
