"""The daemon: accepts jobs and runs all of them in one account until it is stopped."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from threading import Lock

from costopt.controller.payload import with_code_revision
from costopt.controller.site import LiveSite, provider_quotas
from costopt.controller.state_dir import LEDGER
from costopt.daemon.intake.admission import check_account, load_submission
from costopt.daemon.loop.backups import Backups
from costopt.daemon.loop.control import LeaderLoop
from costopt.daemon.loop.ledger_mark import LedgerMark
from costopt.daemon.loop.lost_commits import LostCommits
from costopt.daemon.loop.orphan_sweeper import OrphanSweeper
from costopt.daemon.loop.payload_preparer import PayloadPreparer
from costopt.daemon.loop.scheduler import DueTimes, PeriodicTask, TaskScheduler
from costopt.daemon.service import DaemonService
from costopt.daemon.settings import DaemonSettings, TaskInterval
from costopt.daemon.shared_state import SharedState
from costopt.daemon.watch.alert_kinds import AlertKind
from costopt.daemon.watch.forecasts import ForecastBoard, LearnedForecasters
from costopt.daemon.watch.notifications import AlertMonitor
from costopt.daemon.watch.price_lists import PriceListRefresher
from costopt.daemon.watch.reports import ReportProcess
from costopt.domain.account import Account, AccountGuards
from costopt.domain.control import Mode, Registry
from costopt.domain.errors import (
    CostoptError,
    LeadershipLostError,
    LedgerError,
    ProviderError,
    StoreError,
)
from costopt.domain.job import Job
from costopt.formatting import seconds_text
from costopt.ledger.base import DurableLedger
from costopt.ledger.fold_cache import save_folds
from costopt.provider.timeouts import OfferCache, TimeoutProvider

DEFAULT_GUARDS = AccountGuards(
    max_usd_per_month=10_000.0, max_usd_per_hour=200.0, max_nodes=64, max_launches_per_hour=240
)
"""Guards for an account file that names none: enough for a few large jobs, and a bound on a
mistake."""
RENEWALS_PER_LEASE = 3.0
Report = Callable[[str], None]


class Daemon:
    """The daemon's tasks. Each is a method without arguments that may run in any thread, but not
    twice at a time.

    ``say`` receives messages for the log.
    """

    def __init__(
        self,
        site: LiveSite,
        registry: Registry,
        ledger: DurableLedger,
        account: Account,
        settings: DaemonSettings,
        say: Report = print,
    ) -> None:
        self._site = site
        self._registry = registry
        self._ledger = ledger
        self._account = with_default_guards(account)
        self._settings = settings
        self._say = say
        self._said = ""
        self._control: LeaderLoop | None = None
        self._fence: int | None = None
        self._jumped_s = 0.0
        self._sweeps_at_once = False
        mark = LedgerMark(settings.state_dir) if settings.database else None
        self._lost_commits = LostCommits(registry, ledger, mark)
        self._ticking = Lock()
        self.board = SharedState(site.clock.now())
        holder = f"{socket.gethostname()}:{os.getpid()}"
        self._leadership = ledger.leadership(holder, settings.lease_s)
        caches = [] if site.is_simulated else [OfferCache(p, site.clock) for p in site.providers]
        self._caches = caches
        self._providers = self._patient(caches)
        self.readiness = PayloadPreparer(self._receive, self.board.is_awaited.set)
        self._sweep = OrphanSweeper(
            self._providers, ledger, site.owner, settings.orphan_grace_s, self.board
        )  # fmt: skip
        self._backups = Backups(settings.state_dir, settings.backups)
        self._reports = ReportProcess(
            settings.database or settings.state_dir / LEDGER, settings.state_dir, settings.reports
        )
        self._watch = AlertMonitor(self.board)
        self._price_lists = PriceListRefresher(say)
        self.board.lists_observed_at = self._price_lists.observed_at()
        self._forecasters = LearnedForecasters(self._ticking, site.market)
        self.forecasts = ForecastBoard(self.board, self._forecasters)
        self.service = DaemonService(
            registry, ledger, site.clock, self.board, settings, site.logs, self._account,
            site.check_secrets, site.prepare_job, self._forecasters,
        )  # fmt: skip

    def lead(self) -> None:
        """Renew the lease while a tick is slow. Only a tick acquires it."""
        try:
            self.board.leads = self._leadership.renew()
        except LedgerError as error:
            self.board.leads = self._leadership.is_leader
            self._log_error(error.message)

    def tick(self) -> None:
        """Run one pass over all jobs if this daemon leads. Errors are reported, not raised."""
        with self._ticking:
            self.board.is_awaited.clear()
            began_s = time.monotonic()
            try:
                self._lost_commits.restore_actions()
                if not self._leads():
                    self.board.set_standby()
                    return
                self._restore_lost_events()
                control = self._controlled()
                if self._jumped_s:
                    control.record_clock_jump(self._jumped_s)
                    self._jumped_s = 0.0
                seen = control.tick()
            except LeadershipLostError as error:
                self._control = None
                self.board.leads = False
                self.board.end_tick()
                self._log_error(error.message)
            except LedgerError as error:
                # Whether the last events were written may be unknown; the ledger is the authority.
                self._control = None
                self._fail(error.message)
            except CostoptError as error:
                self._fail(str(error.message))
            except Exception as error:
                # The engine's memory may be half updated; the ledger is complete.
                self._control = None
                self._fail(f"unexpected {type(error).__name__}: {error}")
                raise
            else:
                self.board.publish(seen, time.monotonic() - began_s)
                self.board.settled(AlertKind.TICK, "")
                self._said = ""
                self._watch.look(seen)
                self._sweeps_at_once |= self._lost_commits.end_tick()

    def refresh_quotas(self) -> None:
        """Fetch the account's quotas. Raise ProviderError if a provider is unreachable."""
        quotas, failures = provider_quotas(self._site.providers, self._site.clock.now())
        self.board.quotas = quotas
        with self._ticking:
            if self._control is not None:
                self._control.engine.set_account(self._whole_account())
        if failures:
            raise failures[0]

    def refresh_carbon(self) -> None:
        """Ask for the live carbon intensities that are due; alert of what is wrong with them."""
        live = self._site.live_carbon
        if live is None:
            return
        live.refresh(self._site.clock.now())
        now = self._site.clock.now()
        self.board.carbon_ages_s = live.ages_s(now)
        problems = live.problems(now)
        if problems:
            message = "; ".join(f"{each.source}: {each.message}" for each in problems)
            self.board.alert(now, AlertKind.CARBON, "", f"{message}; annual means count meanwhile")
        else:
            self.board.settled(AlertKind.CARBON, "")

    def forecast(self) -> None:
        """Forecast the jobs that are due, if this daemon leads."""
        if not self.board.leads:
            self.board.forecasts = {}
        elif self.board.ticked_at is not None:
            self.forecasts.update()

    def sweep(self) -> None:
        """List orphans, and release them in mode enforce. Raise LedgerError."""
        if not self.board.leads or self.board.ticked_at is None:
            return
        enforces, at_once = self.service.mode() is Mode.ENFORCE, self._sweeps_at_once
        try:
            now, self._sweeps_at_once = self._site.clock.now(), False
            self._sweep.sweep(now, releases=enforces, at_once=at_once)
        except ProviderError as error:
            self._log_error(error.message)

    def back_up(self) -> None:
        """Back up the daemon's files. A database server's backups are its administrator's."""
        try:
            self._backups.make(datetime.now(UTC))
        except LedgerError as error:
            self.board.alert(self._site.clock.now(), AlertKind.BACKUP, "", error.message)
            self._log_error(error.message)
        else:
            self.board.settled(AlertKind.BACKUP, "")

    def keep_folds(self) -> None:
        """Save the folds of the ledger, so that status, reports and the next start do not read
        every event."""
        if not self.board.leads:
            return
        try:
            save_folds(self._ledger)
        except LedgerError as error:
            self._log_error(error.message)

    def report(self) -> None:
        """Write a report on all jobs into the state directory."""
        if not self.board.leads:
            return
        try:
            self._reports.make(self._site.clock.now())
        except StoreError as error:
            self._log_error(error.message)

    def refresh_price_lists(self) -> None:
        """Refresh the public price lists. Raise PriceListError if none could be."""
        try:
            self._price_lists.refresh()
        finally:
            self.board.lists_observed_at = self._price_lists.observed_at()

    def end_tasks(self) -> None:
        """Cancel a long task that may be interrupted, as the daemon is stopping."""
        self._reports.end()

    def tasks(self) -> tuple[PeriodicTask, ...]:
        """Return the periodic tasks with their intervals."""
        schedule, settings = self._settings.schedule, self._settings
        lists = schedule.price_lists
        tick = TaskInterval(settings.tick_s / self._site.clock.speed)
        lease = TaskInterval(settings.lease_s / RENEWALS_PER_LEASE)
        return (
            PeriodicTask("lead", lease, self.lead),
            *(
                PeriodicTask(f"prices {cache.name}", schedule.prices, cache.refresh)
                for cache in self._caches
            ),
            PeriodicTask("readiness", schedule.readiness, self.readiness.prepare),
            PeriodicTask("tick", tick, self.tick),
            PeriodicTask("forecasts", schedule.forecasts, self.forecast),
            PeriodicTask("quotas", schedule.quotas, self.refresh_quotas),
            *(
                [PeriodicTask("carbon", schedule.carbon, self.refresh_carbon)]
                if self._site.live_carbon is not None
                else []
            ),
            PeriodicTask("orphans", schedule.orphans, self.sweep, kept=True),
            PeriodicTask("folds", schedule.backup, self.keep_folds, kept=True),
            PeriodicTask("report", schedule.report, self.report, kept=True),
            *(
                [PeriodicTask("price lists", lists, self.refresh_price_lists, kept=True)]
                if lists is not None and not self._site.is_simulated
                else []
            ),
            *(
                [PeriodicTask("backup", schedule.backup, self.back_up, kept=True)]
                if settings.database is None
                else []
            ),
        )

    def schedule(self, due_times: DueTimes | None) -> TaskScheduler:
        """Return a scheduler of the tasks, not yet started."""
        return TaskScheduler(self.tasks(), self.board, due_times)

    def hasten(self, schedule: TaskScheduler) -> None:
        """Let a tick begin at once where a job awaits it: a submission, or one that is ready; and
        look for orphans at once after events were lost."""
        if self.board.is_awaited.is_set() and not self._ticking.locked():
            schedule.hasten("tick")
        if self._sweeps_at_once:
            schedule.hasten("orphans")

    def observe_jump(self, jump_s: float, schedule: TaskScheduler) -> None:
        """Raise an alert that the wall clock was set by so many seconds; the tasks keep their
        intervals, and the next tick records it."""
        schedule.realign()
        self._jumped_s += jump_s
        self.board.settled(AlertKind.CLOCK, "")
        way = "ahead" if jump_s > 0 else "back"
        message = f"the wall clock was set {way} by {seconds_text(abs(jump_s))}"
        self.board.alert(self._site.clock.now(), AlertKind.CLOCK, "", message)
        self._say(message)

    def close(self) -> None:
        """Close the providers and release the lease; nodes keep running."""
        with self._ticking:
            if self._control is not None:
                self._control.close()
            self._control = None
            for provider in self._providers:
                provider.close()
            # The lease of an unreachable database server expires.
            with suppress(LedgerError):
                self._leadership.release()

    def _leads(self) -> bool:
        """Return whether this daemon leads after renewing or acquiring the lease. A new leader
        rebuilds its state from the ledger."""
        self.board.leads = self._leadership.acquire()
        if not self.board.leads or self._leadership.fence != self._fence:
            self._control = self._forecasters.strategies = None
        self._fence = self._leadership.fence
        return self.board.leads

    def _restore_lost_events(self) -> None:
        """Alert of commits that the database lost; what it has decides again. Raise LedgerError."""
        if message := self._lost_commits.restore_events():
            self._control = None
            self.board.settled(AlertKind.DATABASE, "")
            self.board.alert(self._site.clock.now(), AlertKind.DATABASE, "", message)
            self._log_error(message)

    def _controlled(self) -> LeaderLoop:
        if self._control is None:
            self._control = LeaderLoop(
                self._site, self._providers, self._registry, self._ledger, self._whole_account(),
                self._settings, self.readiness, lambda: self.board.forecasts,
            )  # fmt: skip
            self._forecasters.strategies = self._control.strategies
        return self._control

    def _receive(self, job: Job) -> Job:
        """Upload a job's files where its nodes fetch them, and return the job with its code's
        revision. Raise CostoptError, also if the account file has changed so that the job names
        places that are not its tenant's."""
        submission = self._registry.submission(job.name) if self._account.tenants else None
        if submission is not None:
            check_account(load_submission(submission), self._account)
        self._site.check(job)
        self._site.upload_payload(job)
        return with_code_revision(job)

    def _whole_account(self) -> Account:
        """Return the account with the quotas that the providers reported."""
        return replace(self._account, quotas=(*self._account.quotas, *self.board.quotas))

    def _patient(self, caches: Sequence[OfferCache]) -> tuple[TimeoutProvider, ...]:
        answer_s, check = self._settings.answer_s, self._leadership.check
        prices: list[OfferCache | None] = [*caches] or [None] * len(self._site.providers)
        return tuple(
            TimeoutProvider(provider, answer_s, check, cache)
            for provider, cache in zip(self._site.providers, prices, strict=True)
        )

    def _fail(self, why: str) -> None:
        self.board.tick_failure = why
        self.board.end_tick()
        self.board.alert(self._site.clock.now(), AlertKind.TICK, "", why)
        self._log_error(why)

    def _log_error(self, why: str) -> None:
        """Log an error once while it stays the same."""
        if why != self._said:
            self._said = why
            self._say(why)


def with_default_guards(account: Account) -> Account:
    """Return the account with its guards, or with the daemon's default guards if it names none."""
    return account if account.guards != AccountGuards() else replace(account, guards=DEFAULT_GUARDS)
