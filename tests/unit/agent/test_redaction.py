"""Values are hidden in logs and messages, however they are cut and written."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from urllib.parse import quote

import pytest

from costopt.agent.redaction import RedactedLog, RedactedStore, Redactor
from costopt.store.folder import FileStore

VALUE = 'pa"ss/word+1'
LINES = "-----BEGIN KEY-----\nMIIabcdefgh\n-----END KEY-----"


@pytest.fixture
def redactor() -> Redactor:
    redactor = Redactor()
    redactor.hide([VALUE])
    redactor.hide([LINES])
    return redactor


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        json.dumps({"a": VALUE}),
        f"http://u:{quote(VALUE, safe='')}@h/",
        base64.b64encode(VALUE.encode()).decode(),
        "> MIIabcdefgh <",
        LINES,
    ],
)
def test_each_form_of_a_value_is_hidden(redactor: Redactor, form: str) -> None:
    said = redactor.text(f"before {form} after")
    assert said.startswith("before ")
    assert said.endswith(" after")
    for part in (VALUE, "MIIabcdefgh", form):
        assert part not in said


def test_a_log_is_redacted_wherever_its_pieces_end(redactor: Redactor, tmp_path: Path) -> None:
    pieces, text = random.Random(7), f'step 1 {VALUE}\nstep 2 pa"ss\n{LINES}\nend' * 20
    log = RedactedLog(redactor, tmp_path / "log")
    with log.target as pipe:
        at = 0
        while at < len(text):
            size = pieces.randint(1, 9)
            pipe.write(text[at : at + size].encode())
            at += size
    log.drain()
    written = (tmp_path / "log").read_text()
    assert VALUE not in written
    assert "MIIabcdefgh" not in written
    assert written.count('step 1 ***\nstep 2 pa"ss\n') == 20
    assert written.endswith("end")


def test_what_is_stored_is_redacted(redactor: Redactor, tmp_path: Path) -> None:
    plain = FileStore(tmp_path)
    store = RedactedStore(plain, redactor)
    message = json.dumps({"message": VALUE}).encode()
    store.put("a", message)
    assert store.put_if_absent("b", message)
    assert store.replace("c", message, None)
    assert {plain.get(key) for key in ("a", "b", "c")} == {b'{"message": "***"}'}
