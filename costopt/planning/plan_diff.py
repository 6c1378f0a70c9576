"""What a change of job, policy or account files costs: each job planned before and after it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from costopt.domain.account import UNLIMITED, Account
from costopt.domain.errors import CostoptError, SpecError
from costopt.domain.estimate import sum_of_known
from costopt.domain.plan import Forecast
from costopt.domain.policy import Policy
from costopt.formatting import gco2e_text, kwh_text, percent_text, usd_text
from costopt.planning.file_tree import FileTree
from costopt.planning.quotes import QuoteSet, account_offers
from costopt.planning.request import load_account, load_checked_policy
from costopt.planning.what_if import POLICY_TERMS, Scenario, forecast_notes, plan_scenario
from costopt.spec.policy_file import bundled_policies

NEGLIGIBLE = 1e-9
"""An increase above a limit that is rounding."""


class Change(StrEnum):
    """What happened to a job. SETTINGS: its policy or account file changed, not its own."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    SETTINGS = "settings"


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A job file on one side of the change: its plan, or why there is none.

    ``is_invalid``: the file, or its policy or account file, cannot be read. ``scenario`` is None
    then; otherwise its ``forecast`` is None where no plan keeps the deadline.
    """

    scenario: Scenario | None
    problem: str = ""

    @property
    def is_invalid(self) -> bool:
        """Return whether a file is wrong."""
        return self.scenario is None

    @property
    def forecast(self) -> Forecast | None:
        """Return the expected figures, None without a plan."""
        return None if self.scenario is None else self.scenario.forecast


@dataclass(frozen=True, slots=True)
class JobDiff:
    """A job file that changed; ``before`` is None if it is new, ``after`` if it was removed."""

    path: str
    change: Change
    before: PlannedFile | None
    after: PlannedFile | None

    @property
    def is_comparable(self) -> bool:
        """Return whether there is a plan on each side on which the job exists."""
        sides = (side for side in (self.before, self.after) if side is not None)
        return all(side.forecast is not None for side in sides)


class Figure(StrEnum):
    """What is compared, by the names of a forecast's fields."""

    USD = "usd_mean"
    KWH = "kwh"
    GCO2E = "gco2e"


@dataclass(frozen=True, slots=True)
class Totals:
    """A figure over the comparable jobs; None where that of any of them is unknown."""

    before: float | None
    after: float | None

    @property
    def increase(self) -> float | None:
        """Return how much it grows, negative where it shrinks, None where unknown."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def share(self) -> float | None:
        """Return the increase as a share of the total before, None where that is nothing."""
        return None if self.increase is None or not self.before else self.increase / self.before


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """The jobs that a change affects, and the number of the others. ``origin`` is a sentence on
    the prices, the same for both sides."""

    jobs: tuple[JobDiff, ...]
    unchanged: int
    origin: str
    notes: tuple[str, ...] = ()

    def totals(self, figure: Figure) -> Totals:
        """Return the sums over the comparable jobs. A job that does not exist costs nothing."""
        known = [job for job in self.jobs if job.is_comparable]
        return Totals(
            sum_of_known(figure_of(job.before, figure) for job in known),
            sum_of_known(figure_of(job.after, figure) for job in known),
        )

    @property
    def invalid(self) -> tuple[JobDiff, ...]:
        """Return the jobs whose files are wrong after the change."""
        return tuple(job for job in self.jobs if job.after is not None and job.after.is_invalid)

    @property
    def late(self) -> tuple[JobDiff, ...]:
        """Return the jobs for which no plan keeps the deadline after the change."""
        return tuple(
            job
            for job in self.jobs
            if job.after is not None and not job.after.is_invalid and job.after.forecast is None
        )


def figure_of(side: PlannedFile | None, figure: Figure) -> float | None:
    """Return a side's figure: 0 for a job that does not exist there, None where unknown."""
    if side is None:
        return 0.0
    value: float | None = getattr(side.forecast, figure, None)
    return value


@dataclass(frozen=True, slots=True)
class DiffSettings:
    """Patterns of job files, and the policy and account that jobs are planned with.

    A relative path is of a file of the trees, and each side uses its own; other policies are
    shipped ones or absolute paths.
    """

    jobs: tuple[str, ...]
    policy: str
    account: str | None = None

    @property
    def own_files(self) -> tuple[str, ...]:
        """Return the names of policy and account files of the trees."""
        shipped = bundled_policies()
        names = [self.policy] if self.policy not in shipped else []
        names += [self.account] if self.account is not None else []
        return tuple(name for name in names if not Path(name).is_absolute())

    @property
    def patterns(self) -> tuple[str, ...]:
        """Return patterns of all files that are read from the trees."""
        return (*self.jobs, *self.own_files)


def diff_plans(base: FileTree, head: FileTree, settings: DiffSettings, seen: QuoteSet) -> PlanDiff:
    """Return the plans of every job whose file, policy or account differs between the trees.

    Raise SpecError if no job file matches, or neither tree has the policy or account file.
    """
    paths = sorted(base.find(settings.jobs) | head.find(settings.jobs))
    if not paths:
        raise SpecError(
            f"no file of {base.name} or {head.name} matches {', '.join(settings.jobs)}",
            hint="name the job files with --jobs, such as --jobs 'jobs/**/*.yaml'",
            code="no_jobs",
        )
    is_shared_changed = any(_is_changed(base, head, name) for name in settings.own_files)
    changes = {
        path: _change(base.content(path), head.content(path), is_shared_changed) for path in paths
    }
    before, after = _Side.read(base, settings), _Side.read(head, settings)
    jobs = tuple(
        JobDiff(path, change, before.planned(path, seen), after.planned(path, seen))
        for path, change in changes.items()
        if change is not None
    )
    sides = (side for job in jobs for side in (job.before, job.after) if side is not None)
    scenarios = [side.scenario for side in sides if side.scenario is not None]
    notes = (*seen.notes, *forecast_notes(scenarios))
    return PlanDiff(jobs, len(paths) - len(jobs), seen.origin, notes)


def _is_changed(base: FileTree, head: FileTree, name: str) -> bool:
    contents = base.content(name), head.content(name)
    if contents == (None, None):
        raise SpecError(
            f"neither {base.name} nor {head.name} has a file {name}",
            hint="give the absolute path of a file outside them",
            code="missing",
            subject=name,
        )
    return contents[0] != contents[1]


def _change(before: bytes | None, after: bytes | None, is_shared_changed: bool) -> Change | None:
    if before is None:
        return Change.ADDED
    if after is None:
        return Change.REMOVED
    if before != after:
        return Change.CHANGED
    return Change.SETTINGS if is_shared_changed else None


@dataclass(frozen=True, slots=True)
class _Side:
    """A tree with its policy and account; ``policy`` is None where ``problem`` says what is wrong
    with them."""

    tree: FileTree
    policy: Policy | None = None
    account: Account = UNLIMITED
    problem: str = ""

    @classmethod
    def read(cls, tree: FileTree, settings: DiffSettings) -> _Side:
        own = settings.own_files
        try:
            policy = load_checked_policy(_file(tree, settings.policy, own))
            account = load_account(
                None if settings.account is None else _file(tree, settings.account, own)
            )
        except SpecError as error:
            return cls(tree, problem=_without_root(error, tree))
        return cls(tree, policy, account)

    def planned(self, path: str, seen: QuoteSet) -> PlannedFile | None:
        """Return the plan of a job file, None if this side does not have it."""
        from costopt.spec import load_planned_job

        file = self.tree.path(path)
        if file is None:
            return None
        if self.policy is None:
            return PlannedFile(None, self.problem)
        try:
            job = load_planned_job(file, seen.now, self.account)
            if seen.age_limit is not None:
                seen = replace(seen, offers=account_offers(seen.offers, self.account))
            scenario = plan_scenario(job, self.policy, POLICY_TERMS, seen, self.account)
        except CostoptError as error:
            return PlannedFile(None, _without_root(error, self.tree))
        return PlannedFile(scenario, scenario.why_not or "")


def _file(tree: FileTree, name: str, own: tuple[str, ...]) -> str:
    """Return the path of the tree's file, or the name of another."""
    if name not in own:
        return name
    found = tree.path(name)
    if found is None:
        raise SpecError(f"{tree.name} has no file {name}", code="missing", subject=name)
    return str(found if found.is_absolute() else Path.cwd() / found)


def _without_root(error: CostoptError, tree: FileTree) -> str:
    """Return the message with the file's name in the tree instead of its place here."""
    roots = sorted({f"{tree.root}/", f"{tree.root.absolute()}/"}, key=len, reverse=True)
    message = error.message
    for root in roots:
        message = message.replace(root, "") if root != "./" else message
    return message


@dataclass(frozen=True, slots=True)
class IncreaseLimit:
    """By how much the total of a figure may grow: an amount in dollars, kWh or grams, or a share
    of the total before the change."""

    figure: Figure
    amount: float
    is_share: bool = False

    @classmethod
    def parse(cls, figure: Figure, text: str) -> IncreaseLimit:
        """Return the limit of "10%" or of an amount; CO2e is in kilograms. Raise ValueError."""
        number = float(text.strip().removeprefix("$").removesuffix("%"))
        if not 0 <= number < math.inf:
            raise ValueError("a limit is 0 or more")
        if text.strip().endswith("%"):
            return cls(figure, number / 100, is_share=True)
        return cls(figure, number * (1000 if figure is Figure.GCO2E else 1))

    def violation(self, diff: PlanDiff) -> str | None:
        """Return a sentence if the limit is exceeded, or cannot be checked; None otherwise. It
        quotes nothing of the change."""
        label, text = _LABELS[self.figure]
        unplanned = len(diff.invalid) + len(diff.late)
        totals = diff.totals(self.figure)
        increase = totals.increase
        if unplanned or increase is None:
            without = "1 job has" if unplanned == 1 else f"{unplanned} jobs have"
            reason = f"{without} no plan" if unplanned else "a node's power is unknown"
            return f"The increase of the {label} cannot be checked: {reason}."
        allowed = self.amount * (totals.before or 0.0) if self.is_share else self.amount
        if increase <= allowed + NEGLIGIBLE:
            return None
        share = "" if totals.share is None else f" ({percent_text(totals.share)})"
        limit = percent_text(self.amount) if self.is_share else text(self.amount)
        nothing = " of nothing before" if self.is_share and not totals.before else ""
        return f"The {label} rises by {text(increase)}{share}; {limit}{nothing} is allowed."


_LABELS: dict[Figure, tuple[str, Callable[[float | None], str]]] = {
    Figure.USD: ("cost", usd_text),
    Figure.KWH: ("energy", kwh_text),
    Figure.GCO2E: ("CO2e", gco2e_text),
}
