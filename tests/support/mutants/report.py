"""What became of the mutants, by package: as a table, and as a file to compare later ones with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

STATUSES = ("killed", "living", "unreached", "gone")


@dataclass(frozen=True, slots=True)
class Row:
    """A mutant and what became of it; ``key`` is the same in each report."""

    key: str
    package: str
    place: str
    old: str
    new: str
    reached_by: int
    ran: int
    status: str
    noticed_by: str

    def describe(self) -> str:
        """Return the mutant on one line."""
        change = f"{self.old}  ->  {self.new}"
        return f"{self.status:9}  {self.place}  {change}  ({self.ran} of {self.reached_by} tests)"


@dataclass(frozen=True, slots=True)
class Report:
    """A run: its mutants, and which shares of statements and branches tests reach, by package."""

    seed: int
    mutants: Sequence[Row]
    shares: Mapping[str, tuple[float | None, float | None]]

    def write(self, path: Path) -> None:
        """Write the report as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")

    @classmethod
    def read(cls, path: Path) -> Report:
        """Return a report that was written before."""
        found = json.loads(path.read_text("utf-8"))
        return cls(found["seed"], [Row(**row) for row in found["mutants"]], found["shares"])

    def figures(self, package: str | None) -> list[str]:
        """Return the cells of a package, or of all: mutants, by status, lines and branches."""
        of_package = [row for row in self.mutants if package in (None, row.package)]
        by_status = Counter(row.status for row in of_package)
        lines, branches = self.shares.get(package or "all", (None, None))
        numbers = [len(of_package), *(by_status[status] for status in STATUSES)]
        return [*map(str, numbers), _percent(lines), _percent(branches)]


COLUMNS = ("mutants", *STATUSES, "lines", "branches")


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def table(reports: Sequence[Report]) -> Iterator[str]:
    """Yield the lines of a table by package, the figures of each report as "before > after"."""
    packages = sorted({name for report in reports for name in report.shares if name != "all"})
    rows: list[tuple[str, ...]] = [("package", *COLUMNS)]
    for package in (*packages, None):
        each = [report.figures(package) for report in reports]
        cells = (" > ".join(dict.fromkeys(cell)) for cell in zip(*each, strict=True))
        rows.append((package or "all", *cells))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (text.rjust(width) for text, width in zip(others, widths[1:], strict=True))
        yield "  ".join((first.ljust(widths[0]), *cells)).rstrip()


def describe(report: Report) -> Iterator[str]:
    """Yield the lines of a report: the table, then the mutants that no test has noticed."""
    yield from table([report])
    for status in STATUSES[1:]:
        yield from (row.describe() for row in report.mutants if row.status == status)


def compare(before: Report, after: Report) -> Iterator[str]:
    """Yield both tables as one, then the mutants that only the earlier tests have noticed."""
    yield from table([before, after])
    then = {row.key: row for row in before.mutants}
    same = {row.key for row in after.mutants} & then.keys()
    yield f"{len(same)} of {len(then)} mutants are in both reports"
    for row in after.mutants:
        if row.key in same and row.status != "killed" and then[row.key].status == "killed":
            yield f"{row.describe()}  before: killed by {then[row.key].noticed_by}"
