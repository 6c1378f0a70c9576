"""The cells of a page's tables and bars, by what names them and not by the words around them."""

from __future__ import annotations

from html.parser import HTMLParser


class PageCells(HTMLParser):
    """``rows[table][row][column]`` and ``tiles[name]`` are texts; ``empty`` are the ids of sections
    that hold nothing, ``columns[table]`` the keys in the order shown."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.rows: dict[str, dict[str, dict[str, str]]] = {}
        self.columns: dict[str, list[str]] = {}
        self.tiles: dict[str, str] = {}
        self.empty: list[str] = []
        self._section = ""
        self._row: dict[str, str] = {}
        self._row_name: str | None = None
        self._open: str | None = None
        self._text = ""
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "section":
            self._section = given["aria-labelledby"]
            if "nothing" in given.get("class", "").split():
                self.empty.append(self._section)
        elif tag == "tr":
            self._row, self._row_name = {}, None
        elif tag == "li" and "data-row" in given:
            self._row, self._row_name = {}, given["data-row"]
        if given.get("scope") == "col":
            self.columns.setdefault(self._section, []).append(given["data-column"])
        elif "data-column" in given or "data-tile" in given:
            self._open, self._text = given.get("data-column") or given["data-tile"], ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        text = " ".join(self._text.split())
        if tag == "dd" and self._open is not None:
            self.tiles[self._open] = text
        elif tag in ("th", "td", "span") and self._open is not None:
            self._row[self._open] = text
            if self._row_name is None:
                self._row_name = text
        else:
            return
        self._open = None
        if tag != "dd":
            rows = self.rows.setdefault(self._section, {})
            rows[self._row_name or ""] = self._row
