"""One table in five forms."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from costopt.cli.options import print_table
from costopt.domain.estimate import Basis, Estimate
from costopt.formatting import probability_text, usd_text
from costopt.render.table import Column, Table
from costopt.render.text_table import to_text
from costopt.render.writers import to_csv, to_html, to_json, to_markdown

TABLE = Table(
    schema="costopt.test/1",
    title="A <title>",
    columns=(
        Column("name", "Name"),
        Column("usd", "Dollars", usd_text, right=True),
        Column("basis", "Basis", detail=True),
        Column("seen_at", "Seen"),
    ),
    rows=(
        {"name": "a|b <i>", "usd": 1234.5, "basis": Basis.LISTED,
         "seen_at": datetime(2026, 5, 1, tzinfo=UTC)},
        {"name": "x" * 150, "usd": None, "seen_at": None},
    ),
    facts={"made_at": datetime(2026, 5, 1, tzinfo=UTC), "list": ({"a": Basis.PRIOR},)},
    notes=("A note & more.",),
)  # fmt: skip


def test_json_has_the_schema_the_facts_and_raw_values() -> None:
    assert json.loads(to_json(TABLE)) == {
        "schema": "costopt.test/1",
        "made_at": "2026-05-01T00:00:00Z",
        "list": [{"a": "prior"}],
        "rows": [
            {
                "name": "a|b <i>", "usd": 1234.5, "basis": "listed",
                "seen_at": "2026-05-01T00:00:00Z",
            },
            {"name": "x" * 150, "usd": None, "basis": None, "seen_at": None},
        ],
    }  # fmt: skip


def test_csv_has_keys_and_raw_values() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(TABLE))))
    assert rows[0] == {
        "name": "a|b <i>", "usd": "1234.5", "basis": "listed", "seen_at": "2026-05-01T00:00:00Z",
    }  # fmt: skip
    assert rows[1]["usd"] == ""


def test_markdown_escapes_what_would_break_the_table() -> None:
    lines = to_markdown(TABLE).splitlines()
    assert lines[2] == "| Name | Dollars | Seen |"
    assert lines[3] == "|---|---:|---|"
    assert lines[4] == "| a\\|b &lt;i> | $1,234.50 | 2026-05-01 00:00Z |"
    assert lines[5].endswith("| – | – |")


def test_html_is_well_formed_and_escaped() -> None:
    page = to_html(TABLE)
    assert "<i>" not in page
    assert "a|b &lt;i&gt;" in page
    open_tags: list[str] = []

    class Balance(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag != "meta":
                open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Balance().feed(page)
    assert open_tags == []


def test_a_table_off_a_terminal_is_plain_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(TABLE, "table")
    reported = capsys.readouterr().out
    assert "x" * 150 in reported
    assert "\x1b" not in reported
    assert all(line == line.rstrip() for line in reported.splitlines())


def test_a_title_that_is_wider_than_the_table_stays_on_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    title = "Checkpoints in /a/folder/with/a/long/[name]"
    print_table(Table("costopt.example/1", title, (Column("a", "A"),), ({"a": 1},)), "table")
    assert capsys.readouterr().out.splitlines()[0] == title


RANKED = Table(
    "costopt.test/1",
    "T",
    (
        Column("a", "A"),
        Column("b", "B" * 20, rank=1),
        Column("c", "C" * 20, rank=3),
        Column("d", "D", fold_at=60),
    ),
    ({"a": "a" * 20, "b": 1, "c": 2, "d": "a/whole/name " * 6},),
)


def heads(text: str) -> list[str]:
    """The letters of the columns side by side."""
    return [word[0] for word in text.splitlines()[2].split()]


def test_where_there_is_no_room_the_highest_rank_goes_first() -> None:
    wide = to_text(RANKED, 94)
    assert heads(wide) == ["A", "B", "C", "D"]
    assert "--wide" not in wide
    without = to_text(RANKED, 93)
    assert heads(without) == ["A", "B", "D"]
    assert f"--wide adds: {'C' * 20}." in without
    assert heads(to_text(RANKED, 50)) == ["A", "B"]


def test_a_sentence_without_room_goes_below_its_row_and_no_name_is_broken() -> None:
    narrow = to_text(RANKED, 49)
    assert heads(narrow) == ["A", "B"]
    assert "\n    a/whole/name a/whole/name a/whole/name\n" in narrow
    for width in range(1, 100):
        assert to_text(RANKED, width).count("a/whole/name") == 6
        assert "a" * 20 in to_text(RANKED, width)


def test_a_column_without_text_is_left_out_and_control_characters_do_nothing() -> None:
    columns = (Column("a", "A"), Column("b", "B", unknown=""))
    text = to_text(Table("costopt.test/1", "T", columns, ({"a": "\x1b[2Jx"}, {"a": "y"})))
    assert heads(text) == ["A"]
    assert "\x1b" not in text


def test_a_table_that_follows_is_in_every_form_for_people() -> None:
    table = replace(TABLE, more=(RANKED,))
    for write in (to_text, to_markdown, to_html):
        assert write(table).count("C" * 20) >= 1
    assert to_json(table) == to_json(TABLE)


def test_an_unknown_value_is_a_dash_unless_its_column_says_otherwise() -> None:
    assert Column("usd", "Dollars", usd_text).text({"usd": None}) == "–"
    assert Column("why", "Why not", unknown="").text({}) == ""
    assert Column("usd", "Dollars", usd_text).text({"usd": 0.0}) == "$0.00"


def test_programs_get_the_ends_of_an_interval() -> None:
    columns = (Column("p", "P", probability_text, interval=True), Column("x", "X"))
    rows = ({"p": Estimate.of_share(200, 200, "drawn"), "x": 1}, {"x": 2})
    table = Table("costopt.test/1", "T", columns, rows)
    first, second = json.loads(to_json(table))["rows"]
    assert list(first) == ["p", "p_low", "p_high", "x"]
    assert 0.98 < first["p_low"] < first["p"] < first["p_high"] == 1.0
    assert second == {"p": None, "p_low": None, "p_high": None, "x": 2}
    header, *lines = to_csv(table).splitlines()
    assert header == "p,p_low,p_high,x"
    assert lines[1] == ",,,2"
    for text in (to_markdown(table), to_html(table)):
        assert "98.5 %" in text
        assert "100.0 %" not in text
