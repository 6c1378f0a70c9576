"""Comments on pull requests of GitHub and merge requests of GitLab, by their REST APIs.

One comment per tag: the newest of our own that begins with it is edited, or a new one is written.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from costopt.domain.errors import CostoptError
from costopt.web_connection import connect_to

TIMEOUT_S = 30.0
PAGE_SIZE = 100
MAX_PAGES = 50
MAX_ANSWER_BYTES = 32 * 1024 * 1024
TRUSTED = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
"""Authors of a repository's own people, as GitHub names them."""


class CommentError(CostoptError):
    """A comment could not be read or written; ``status`` is the HTTP status, None for a failed
    connection."""

    def __init__(self, message: str, status: int | None) -> None:
        super().__init__(message, code="comment")
        self.status = status


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment that exists: its id, and its address if the API gives one."""

    number: int
    url: str = ""


class CommentThread(Protocol):
    """The comments of one pull request. Each method raises CommentError."""

    def find(self, tag: str) -> Comment | None:
        """Return our newest comment that begins with ``tag``, None if there is none."""
        ...

    def add(self, text: str) -> Comment:
        """Write a new comment and return it."""
        ...

    def replace(self, comment: Comment, text: str) -> Comment:
        """Replace a comment's text."""
        ...


def put_comment(thread: CommentThread, tag: str, text: str, *, create: bool) -> Comment | None:
    """Replace the comment with ``tag``; without one, write a new one if ``create`` says so.

    Return it, None if none was written. Raise CommentError.
    """
    found = thread.find(tag)
    if found is not None:
        try:
            return thread.replace(found, text)
        except CommentError as error:
            if error.status != http.client.NOT_FOUND:
                raise  # else it was deleted meanwhile
    return thread.add(text) if create else None


class GitHubThread:
    """The comments of an issue or pull request of ``repository`` ("owner/name")."""

    def __init__(self, api_url: str, repository: str, number: int, token: str) -> None:
        self._api = _Api(
            api_url,
            {
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {token}",
                "X-GitHub-Api-Version": "2022-11-28",
            },
        )
        self._comments = f"/repos/{repository}/issues/{number}/comments"
        self._one = f"/repos/{repository}/issues/comments"

    def find(self, tag: str) -> Comment | None:
        """Return the newest comment of a bot or of the repository's people with the tag: one that
        a stranger wrote is not ours."""
        found = None
        for each in self._api.pages(f"{self._comments}?per_page={PAGE_SIZE}"):
            is_bot = (each.get("user") or {}).get("type") == "Bot"
            is_trusted = is_bot or each.get("author_association") in TRUSTED
            if is_trusted and str(each.get("body", "")).startswith(tag):
                found = _github_comment(each)
        return found

    def add(self, text: str) -> Comment:
        """Write a new comment and return it."""
        return _github_comment(self._api.send("POST", self._comments, {"body": text}))

    def replace(self, comment: Comment, text: str) -> Comment:
        """Replace a comment's text."""
        path = f"{self._one}/{comment.number}"
        return _github_comment(self._api.send("PATCH", path, {"body": text}))


class GitLabThread:
    """The notes of a merge request of ``project`` (its id); the token needs the scope api."""

    def __init__(self, api_url: str, project: str, number: int, token: str) -> None:
        self._api = _Api(api_url, {"PRIVATE-TOKEN": token})
        self._notes = f"/projects/{project}/merge_requests/{number}/notes"

    def find(self, tag: str) -> Comment | None:
        """Return the newest note of the token's user with the tag, None if there is none."""
        own = self._api.send("GET", "/user").get("id")
        found = [
            each
            for each in self._api.pages(f"{self._notes}?per_page={PAGE_SIZE}&sort=asc")
            if (each.get("author") or {}).get("id") == own
            and str(each.get("body", "")).startswith(tag)
        ]
        return Comment(int(found[-1]["id"])) if found else None

    def add(self, text: str) -> Comment:
        """Write a new note and return it."""
        return Comment(int(self._api.send("POST", self._notes, {"body": text})["id"]))

    def replace(self, comment: Comment, text: str) -> Comment:
        """Replace a note's text."""
        path = f"{self._notes}/{comment.number}"
        return Comment(int(self._api.send("PUT", path, {"body": text})["id"]))


def _github_comment(answer: Mapping[str, Any]) -> Comment:
    return Comment(int(answer["id"]), str(answer.get("html_url", "")))


class _Api:
    """A REST API. Redirects are errors: they would carry the token to another host."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = urlsplit(url)
        self._headers = {"User-Agent": "costopt", **headers}

    def send(self, method: str, path: str, body: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the object that the API answers with. Raise CommentError."""
        answer, _ = self._exchange(method, path, body)
        if not isinstance(answer, dict):
            raise CommentError(f"{self._name} answered {method} {path} with a list", None)
        return answer

    def pages(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of all pages. Raise CommentError."""
        for page in range(1, MAX_PAGES + 1):
            answer, headers = self._exchange("GET", f"{path}&page={page}")
            rows = answer if isinstance(answer, list) else []
            yield from (row for row in rows if isinstance(row, dict))
            if 'rel="next"' not in headers.get("Link", "") and not headers.get("X-Next-Page"):
                return

    @property
    def _name(self) -> str:
        return self._url.hostname or "the server"

    def _exchange(
        self, method: str, path: str, body: Mapping[str, str] | None = None
    ) -> tuple[Any, http.client.HTTPMessage]:
        data = None if body is None else json.dumps(body).encode()
        headers = dict(self._headers)
        if data is not None:
            headers["Content-Type"] = "application/json"
        url = self._url._replace(path=self._url.path.rstrip("/") + path)
        try:
            connection, target = connect_to(urlsplit(url.geturl()), TIMEOUT_S, headers)
            with closing(connection):
                connection.request(method, target, data, headers)
                with connection.getresponse() as response:
                    status, text = response.status, response.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise CommentError(f"{self._name} cannot be reached: {error}", None) from None
        if not 200 <= status < 300:
            raise CommentError(f"{self._name} refused the comment: {_reason(status, text)}", status)
        try:
            return json.loads(text), response.headers
        except ValueError:
            raise CommentError(f"{self._name} did not answer in JSON", status) from None


def _reason(status: int, text: bytes) -> str:
    """Return the status and the API's message, on one line."""
    try:
        message = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        message = ""
    return " ".join(f"{status} {message}".split())[:200]
