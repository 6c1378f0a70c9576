"""Nothing that a job prints steers the terminal of who reads its log."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costopt.domain.terminal_text import TerminalTextFilter, terminal_text

PLAIN = {
    "step 1\nstep 2\tloss 3.0\n": "step 1\nstep 2\tloss 3.0\n",
    "größer 速い €": "größer 速い €",
    "\x1b[31mred\x1b[0m": "red",
    "\x1b[38;2;1;2;3mtrue color\x1b[m": "true color",
    "\x1b[2J\x1b[H\x1b[?25lcleared": "cleared",
    "\x1b[1A\x1b[2Kover the line before": "over the line before",
    "\x1b]0;a title\x07after": "after",
    "\x1b]8;;https://example.test\x1b\\a link\x1b]8;;\x1b\\": "a link",
    "\x1b]52;c;cm0gLXJm\x07clipboard": "clipboard",
    "\x1bPq#0;2;0\x1b\\sixel": "sixel",
    "\x1b[6n\x1b[c\x1bZquestions": "questions",
    "\x1bcreset \x1b(0charset": "reset charset",
    "\x9b31mone byte\x9d0;title\x9c": "one byte",
    "10%\r20%\r\n30%\r\r\n": "10%\n20%\n30%\n",
    "b\x08a\x07ck": "b\ufffda\ufffdck",
    "a\u202eb\u2066c": "a\ufffdb\ufffdc",
    "\x1b\x1b[0m[31mnested": "\ufffd[31mnested",
    "\x1b]0;no end\nthe next line\n": "\ufffd]0;no end\nthe next line\n",
}


@pytest.mark.parametrize("printed", PLAIN, ids=repr)
def test_a_whole_text(printed: str) -> None:
    assert terminal_text(printed) == PLAIN[printed]


@pytest.mark.parametrize("printed", PLAIN, ids=repr)
def test_a_text_that_comes_in_parts(printed: str) -> None:
    whole = f"{printed}|\n"
    for size in range(1, len(whole)):
        shown = TerminalTextFilter()
        parts = (whole[at : at + size] for at in range(0, len(whole), size))
        assert "".join(map(shown.feed, parts)) == f"{PLAIN[printed]}|\n", size


@given(st.lists(st.text("\x1b[]P0;m\\\x07\x9b\x9d\x9c\r\n a\u202e\x08"), max_size=6))
def test_no_part_of_any_text_steers(parts: list[str]) -> None:
    shown = TerminalTextFilter()
    for part in parts:
        text = shown.feed(part)
        assert all(each.isprintable() or each in "\n\t" for each in text)


@pytest.mark.parametrize("repeated", ["\x1b]", "\x9d", "\x1b[0", "\x1b ", "\r", "\x1bP;"])
def test_no_text_takes_long(repeated: str) -> None:
    began = time.process_time()
    shown = TerminalTextFilter()
    for _ in range(4):
        shown.feed(repeated * 100_000)
    assert time.process_time() - began < 5


def test_a_sequence_without_an_end_is_not_waited_for() -> None:
    shown = TerminalTextFilter()
    assert shown.feed("\x1b]0;" + "a" * 10_000).endswith("a" * 9_000)
    assert shown.feed("b\n") == "b\n"
