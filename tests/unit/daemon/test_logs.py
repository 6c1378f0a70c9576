"""Nodes' logs, read in pieces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from costopt.controller import node_logs as logs
from costopt.controller.node_logs import FolderLogs
from costopt.domain.errors import SpecError
from costopt.store.folder import FileStore
from tests.support.errors import has_code


def test_a_log_read_in_pieces_is_the_whole_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Schritt ½ █▉▊ 🙂\n" * 50
    (tmp_path / "n").mkdir()
    (tmp_path / "n" / "trainer-000001.log").write_text(text, encoding="utf-8")
    for size in (7, 8, 9, 64):
        monkeypatch.setattr(logs, "PIECE_BYTES", size)
        read, after = "", 0
        while (piece := FolderLogs(tmp_path, FileStore(tmp_path)).read("j", "n", after)).text:
            read += piece.text
            after = piece.next_byte
        assert read == text


def test_half_a_character_waits_for_its_rest(tmp_path: Path) -> None:
    log = tmp_path / "n" / "trainer-000001.log"
    log.parent.mkdir()
    log.write_bytes("a█".encode()[:3])
    first = FolderLogs(tmp_path, FileStore(tmp_path)).read("j", "n", 0)
    assert (first.text, first.next_byte) == ("a", 1)
    log.write_bytes("a█\n".encode())
    assert FolderLogs(tmp_path, FileStore(tmp_path)).read("j", "n", 1).text == "█\n"


def test_bytes_that_are_not_text_are_marked(tmp_path: Path) -> None:
    log = tmp_path / "n" / "trainer-000001.log"
    log.parent.mkdir()
    log.write_bytes(b"a\xffb")
    piece = FolderLogs(tmp_path, FileStore(tmp_path)).read("j", "n", 0)
    assert (piece.text, piece.next_byte) == ("a\N{REPLACEMENT CHARACTER}b", 3)


@pytest.mark.parametrize("node", ["", ".", "..", "../n", "n/..", "/etc", "nope", "n\0", "link"])
def test_a_node_is_not_a_path(tmp_path: Path, node: str) -> None:
    (tmp_path / "nodes" / "n").mkdir(parents=True)
    (tmp_path / "nodes" / "link").symlink_to("/")
    with pytest.raises(SpecError, check=has_code("missing")):
        FolderLogs(tmp_path / "nodes", FileStore(tmp_path)).read("j", node, 0)


def test_only_files_that_the_node_has_itself_are_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    node = tmp_path / "nodes" / "n"
    node.mkdir(parents=True)
    os.mkfifo(node / "trainer-000001.log")
    (node / "trainer-000002.log").symlink_to(tmp_path / "secret")
    (node / "trainer-000003.log").symlink_to("nowhere")
    (node / "trainer-000004.log").write_text("mine")
    assert FolderLogs(tmp_path / "nodes", FileStore(tmp_path)).read("j", "n", 0).text == "mine"
