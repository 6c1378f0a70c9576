"""What every source of interruption notices answers, and nothing more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Notice:
    """The provider takes the node: ``action`` is "terminate", "stop" or "hibernate".

    ``time`` is when, as it was told (ISO 8601), or None. ``deadline_at`` is the same by this
    node's wall clock, POSIX seconds; None where nobody said.
    """

    action: str
    time: str | None
    deadline_at: float | None = None


class NoticeSource(Protocol):
    """Asked at each look of the agent; no method waits for anything.

    A source that cannot be reached has no notice to give: silence is not an interruption.
    """

    def start(self) -> None:
        """Begin to watch."""
        ...

    def notice(self) -> Notice | None:
        """The notice, or None while there is none. A notice once given is not taken back."""
        ...

    def rebalance_warning(self) -> str:
        """What the provider says short of a notice, such as a rebalance recommendation; or ""."""
        ...

    def error(self) -> str:
        """Why the source cannot be asked at present, or ""."""
        ...

    def close(self) -> None:
        """Stop watching."""
        ...


class NoNotices:
    """For a node that nobody announces anything to, such as on-premises."""

    def start(self) -> None:
        """Nothing to watch."""

    def notice(self) -> Notice | None:
        """There never is one."""
        return None

    def rebalance_warning(self) -> str:
        """There never is one."""
        return ""

    def error(self) -> str:
        """There never is any."""
        return ""

    def close(self) -> None:
        """Nothing to stop."""
