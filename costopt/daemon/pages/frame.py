"""What stands around every page: where one is, how the daemon is, and whether it refreshes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from costopt.daemon.reader import TenantReader
from costopt.daemon.views import Health
from costopt.domain.control import Halt, Mode, ProposalState

REFRESH_S = 30
REFRESH = "refresh"
OFF = "off"
PLACES = (
    ("/", "Fleet"),
    ("/jobs", "Jobs"),
    ("/market", "Market"),
    ("/decisions", "Decisions"),
    ("/ledger", "Ledger"),
    ("/guards", "Guards"),
    ("/proposals", "Proposals"),
)


@dataclass(frozen=True, slots=True)
class PageLayout:
    """``path`` is the page's own; ``words`` what narrows its rows. ``who`` looks at it."""

    path: str
    words: str
    who: str
    signed_in: bool
    refreshes: bool
    now: datetime
    mode: Mode
    halt: Halt | None
    health: Health
    open_proposals: int

    @property
    def refresh_s(self) -> int:
        """After how many seconds the browser loads the page anew."""
        return REFRESH_S

    @property
    def place(self) -> str:
        """The place of the page in the menu, of which a job's or a decision's page is a part."""
        places = [path for path, _ in PLACES if path != "/" and self.path.startswith(path)]
        return places[0] if places else "/"

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Path and name of each place in the menu."""
        return PLACES

    @property
    def other_refresh(self) -> str:
        """The address of this page where it refreshes if it does not now, and the other way."""
        query: Mapping[str, str] = {REFRESH: OFF if self.refreshes else "on"}
        return f"?{urlencode({'q': self.words, **query} if self.words else query)}"


def build_layout(
    reader: TenantReader, path: str, words: str, who: str, *, signed_in: bool, refreshes: bool
) -> PageLayout:
    """May raise LedgerError."""
    fleet = reader.fleet()
    return PageLayout(
        path=path,
        words=words,
        who=who,
        signed_in=signed_in,
        refreshes=refreshes,
        now=fleet.now,
        mode=fleet.mode,
        halt=fleet.halt,
        health=reader.health(),
        open_proposals=len(reader.proposals([ProposalState.OPEN])),
    )
