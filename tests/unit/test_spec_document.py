"""YAML files: what is no mapping is refused, with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costopt.spec.document import MAX_BYTES, parse_document, read_document
from costopt.spec.problem import SpecFileError


def refusal(tmp_path: Path, data: bytes | str) -> str:
    path = tmp_path / "f.yaml"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(SpecFileError) as caught:
        read_document(str(path))
    return str(caught.value).replace(str(path), "f.yaml")


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
    ("data", "said"),
    [
        (b"", "the file is empty"),
        (b"# nothing\n", "the file is empty"),
        (b"\xff\xfea\x00", "is not UTF-8 text (byte 0)"),
        (b"a: 1\nb: \x00", "f.yaml:2:4: is not YAML: the character"),
        (b"- 1", "f.yaml:1:1: expected a mapping of fields to values"),
        (b"a: [1", "is not YAML: while parsing a flow sequence"),
        (b"a: 1\n--- \nb: 1", "is not YAML: expected a single document"),
        (b"a: 1\na: 2", "f.yaml:2:1: a: appears twice; the first is on line 1"),
        (b"a: {b: 1, b: 2}", "f.yaml:1:11: a.b: appears twice; the first is on line 1"),
        (b"? [1]\n: 2", "a key must be a word"),
        (b"a: !!python/object/apply:os.system [ls]", "is not allowed"),
        (b"a: &x [*x]", "nested deeper than"),
        (b"a: !!int x", "a: 'x' is no value of its type"),
        (b"a: " + b"9" * 5000, "is no value of its type"),
        (b'a: "\\UFFFFFFFF"', "is not YAML"),
        (b"a: *nothing", "found undefined alias"),
        (b"a: " + b"[" * 100 + b"]" * 100, "nested deeper than"),
        (b"a: " + b"[" * 20_000, "nested deeper than"),
        (b"a: " + b"x" * MAX_BYTES, "is larger than 256 KiB"),
    ],
)
def test_what_is_no_document_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    assert said in refusal(tmp_path, data)


def test_aliases_cannot_blow_up(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "holds more than 20000 values" in refusal(tmp_path, "\n".join(lines))


def test_aliases_that_stay_small_are_expanded(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("a: &x {b: 1}\nc: *x\n")
    assert read_document(str(path)).values == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/", "is a directory"),
        ("/nowhere/f.yaml", "no such file"),
        ("/dev/zero", "is larger than"),
        ("a\0b", "null byte"),
    ],
)
def test_what_cannot_be_read_is_refused(path: str, said: str) -> None:
    with pytest.raises(SpecFileError, match=said):
        read_document(path)


def test_json_may_write_a_character_as_two_halves() -> None:
    """JSON escapes a character beyond the first plane as two; YAML has each be one of its own."""
    values = {"name 😀": "on 😀", "runs": ["😀😀"]}
    assert parse_document(json.dumps(values), "job.json").values == values
    with pytest.raises(SpecFileError):
        parse_document(r'{"name": "\ud83d and \ude00"}', "job.json")
