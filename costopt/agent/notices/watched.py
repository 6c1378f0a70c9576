"""What threads of a source have heard so far, read by the agent's loop without waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable

from costopt.agent.notices.metadata import MetadataError
from costopt.agent.notices.source import Notice

FAILURES_BEFORE_ERROR = 3
"""One lost packet is no trouble worth telling."""


class PollingNoticeSource:
    """Base of the sources that ask a metadata service, each question in a daemon thread.

    ``_watch`` asks again and again and takes note of what it hears with ``_announce`` and
    ``_warn``. A question that fails is asked again; it changes nothing that is known.
    """

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s
        self._closed = threading.Event()
        self._notice: Notice | None = None
        self._warnings: dict[str, str] = {}
        self._troubles: dict[str, str] = {}
        self._threads: list[threading.Thread] = []

    def queries(self) -> dict[str, Callable[[], None]]:
        """By name, what is asked; each raises MetadataError where there is no usable answer."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin to watch."""
        for name, question in self.queries().items():
            thread = threading.Thread(
                target=self._watch, args=(name, question), name=f"notices-{name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def notice(self) -> Notice | None:
        """The notice, or None while there is none."""
        return self._notice

    def rebalance_warning(self) -> str:
        """What the provider says short of a notice, or ""."""
        return "; ".join(text for text in self._warnings.values() if text)

    def error(self) -> str:
        """Why the service cannot be asked at present, or ""."""
        return "; ".join(dict.fromkeys(text for text in self._troubles.values() if text))

    def close(self) -> None:
        """Stop watching; a thread that waits for an answer ends with it."""
        self._closed.set()

    def _announce(self, notice: Notice) -> None:
        """Keep the notice that strikes first: another one cannot give time back."""
        known = self._notice
        if known is None or (notice.deadline_at or 0.0) < (known.deadline_at or 0.0):
            self._notice = notice

    def _warn(self, name: str, text: str) -> None:
        self._warnings[name] = text

    def _watch(self, name: str, question: Callable[[], None]) -> None:
        failures = 0
        while not self._closed.is_set():
            try:
                question()
                failures = 0
                self._troubles[name] = ""
            except MetadataError as error:
                failures += 1
                if failures >= FAILURES_BEFORE_ERROR:
                    self._troubles[name] = str(error)
            self._closed.wait(self._poll_s)
