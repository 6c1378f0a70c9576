"""YAML files: what is no mapping is refused, with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costopt.spec.yaml_document import (
    MAX_BYTES,
    SpecFileError,
    SpecProblem,
    parse_document,
    read_document,
)


def refusal(tmp_path: Path, data: bytes | str) -> SpecProblem:
    path = tmp_path / "f.yaml"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(SpecFileError) as caught:
        read_document(str(path))
    (problem,) = caught.value.problems
    assert problem.path == str(path)
    return problem


def test_scalars_follow_yaml_1_2(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("{a: on, b: 1:30, c: 1e3, d: 2026-05-01, e: 007, f: ~, g: true, h: -2, i: .5}")
    values = read_document(str(path)).values
    assert values == {
        "a": "on", "b": "1:30", "c": 1000.0, "d": "2026-05-01", "e": "007",
        "f": None, "g": True, "h": -2, "i": 0.5,
    }  # fmt: skip


def test_values_and_keys_know_their_places(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("a:\n  - b: 1\n    c: 2\n")
    document = read_document(str(path))
    assert str(document.problem(("a", 0, "c"), "x")) == f"{path}:3:8: a[0].c: x"
    assert str(document.problem(("a", 0, "c"), "x", on_key=True)) == f"{path}:3:5: a[0].c: x"
    assert str(document.problem(("a", 0, "z"), "x")) == f"{path}:2:5: a[0].z: x"


@pytest.mark.parametrize(
    ("data", "line", "column", "code"),
    [
        (b"", 0, 0, "empty"),
        (b"# nothing\n", 0, 0, "empty"),
        (b"\xff\xfea\x00", 0, 0, "encoding"),
        (b"a: 1\nb: \x00", 2, 4, "yaml_syntax"),
        (b"- 1", 1, 1, "model_type"),
        (b"a: [1", 1, 6, "yaml_syntax"),
        (b"a: 1\n--- \nb: 1", 2, 1, "yaml_syntax"),
        (b"a: 1\na: 2", 2, 1, "duplicate_key"),
        (b"a: {b: 1, b: 2}", 1, 11, "duplicate_key"),
        (b"? [1]\n: 2", 1, 3, "key_type"),
        (b"a: !!python/object/apply:os.system [ls]", 1, 4, "unknown_tag"),
        (b"a: &x [*x]", 1, 4, "too_deep"),
        (b"a: !!int x", 1, 4, "invalid_scalar"),
        (b"a: " + b"9" * 5000, 1, 4, "invalid_scalar"),
        (b'a: "\\UFFFFFFFF"', 0, 0, "yaml_syntax"),
        (b"a: *nothing", 1, 4, "yaml_syntax"),
        (b"a: " + b"[" * 100 + b"]" * 100, 1, 36, "too_deep"),
        (b"a: " + b"[" * 20_000, 0, 0, "too_deep"),
        (b"a: " + b"x" * MAX_BYTES, 0, 0, "too_large"),
    ],
)
def test_what_is_not_a_document_is_refused(
    tmp_path: Path, data: bytes, line: int, column: int, code: str
) -> None:
    problem = refusal(tmp_path, data)
    assert (problem.line, problem.column, problem.code) == (line, column, code)


@pytest.mark.slow
def test_aliases_cannot_blow_up(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert refusal(tmp_path, "\n".join(lines)).code == "too_many_values"


def test_aliases_that_stay_small_are_expanded(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("a: &x {b: 1}\nc: *x\n")
    assert read_document(str(path)).values == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/", "unreadable"),
        ("/nowhere/f.yaml", "unreadable"),
        ("/dev/zero", "too_large"),
        ("a\0b", "unreadable"),
    ],
)
def test_what_cannot_be_read_is_refused(path: str, code: str) -> None:
    with pytest.raises(SpecFileError) as caught:
        read_document(path)
    assert [(each.path, each.code) for each in caught.value.problems] == [(path, code)]


def test_json_may_write_a_character_as_two_halves() -> None:
    """JSON escapes a character beyond the first plane as two; YAML has each be one of its own."""
    values = {"name 😀": "on 😀", "runs": ["😀😀"]}
    assert parse_document(json.dumps(values), "job.json").values == values
    with pytest.raises(SpecFileError):
        parse_document(r'{"name": "\ud83d and \ude00"}', "job.json")
