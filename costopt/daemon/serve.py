"""Runs a daemon from its start to the signal that stops it."""

from __future__ import annotations

import faulthandler
import gc
import os
from collections.abc import Callable
from contextlib import ExitStack
from threading import Event

from costopt.controller.site import ScaledClockPort, SiteConfig
from costopt.controller.state_dir import CLOUD, LEDGER, daemon_lock, exposure_note, make_state_dir
from costopt.daemon.daemon import Daemon
from costopt.daemon.http.server import bind_listeners, serve_api
from costopt.daemon.loop.backups import Backups
from costopt.daemon.loop.clock_watch import ClockWatch
from costopt.daemon.loop.scheduler import DUE_TIMES, open_due_times
from costopt.daemon.reader import is_alive
from costopt.daemon.settings import DaemonSettings
from costopt.daemon.watch.notifications import NO_NOTIFICATIONS, NotificationConfig, run_notifiers
from costopt.daemon.watch.service_manager import STDERR, ServiceManager
from costopt.database.connection import wait_for_server
from costopt.domain.account import Account
from costopt.ledger.base import open_ledger
from costopt.protocol.stop_signals import handle_stop_signals
from costopt.registry.registry import REGISTRY, open_registry

POLL_S = 0.5
GC_THRESHOLD = 50_000
"""Number of new objects that triggers a garbage collection. A tick over a thousand jobs makes a
million objects that are not garbage, and with Python's default of 700 the collector takes a sixth
of its time."""


def serve(
    site_config: SiteConfig,
    account: Account,
    settings: DaemonSettings,
    say: Callable[[str], None],
    voice: NotificationConfig = NO_NOTIFICATIONS,
) -> None:
    """Run until SIGTERM, SIGINT or SIGHUP: then finish the tick and leave all nodes running.

    Raises StoreError, LedgerError, SpecError, ProviderError, MissingExtraError.
    """
    ended, manager, clock_watch = Event(), ServiceManager(os.environ), ClockWatch()
    # Under systemd's watchdog, SIGABRT ends a daemon that hangs: then stderr says where.
    faulthandler.enable(STDERR)

    def report(status: str) -> None:
        say(f"costopt daemon: {status}")
        manager.report_status(status)

    with ExitStack() as held:
        held.callback(gc.set_threshold, *gc.get_threshold())
        gc.set_threshold(GC_THRESHOLD)
        held.enter_context(handle_stop_signals(lambda _: ended.set()))
        make_state_dir(settings.state_dir)
        if (note := exposure_note(settings.state_dir)) is not None:
            say(f"costopt daemon: {note}")
        held.enter_context(daemon_lock(settings.state_dir))
        listeners = held.enter_context(bind_listeners(settings))
        database = settings.database
        if database is None:
            Backups(settings.state_dir, settings.backups).check()
        if database is not None and not wait_for_server(database, ended, report):
            return
        registry = held.enter_context(open_registry(database or settings.state_dir / REGISTRY))
        ledger = held.enter_context(open_ledger(database or settings.state_dir / LEDGER))
        site = site_config.connect(settings.state_dir / CLOUD)
        daemon = Daemon(site, registry, ledger, account, settings, say)
        held.callback(daemon.close)
        known = max(ledger.last_seqs().values(), default=0)
        held.enter_context(run_notifiers(daemon.service, known, voice))
        due_times = held.enter_context(open_due_times(settings.state_dir / DUE_TIMES))
        schedule = daemon.schedule(due_times)
        schedule.start()
        held.callback(schedule.stop)
        held.callback(daemon.end_tasks)
        places = held.enter_context(
            serve_api(listeners, daemon.service, registry.tokens, settings, voice.webhooks)
        )
        say(f"costopt daemon: mode {daemon.service.mode().value}, state in {settings.state_dir}")
        if site.is_simulated:
            say(f"costopt daemon: {_market_time(site.clock)}")
        for place in places:
            say(f"costopt daemon: answers at {place}")
        manager.report_ready()
        held.callback(manager.report_stopping)
        while not ended.wait(POLL_S):
            if is_alive(daemon.service):
                manager.report_alive()
            if jump_s := clock_watch.poll():
                daemon.observe_jump(jump_s, schedule)
            daemon.hasten(schedule)
        say("costopt daemon: ending; nodes keep running")


def _market_time(clock: ScaledClockPort) -> str:
    """Return the market's time and speed. They may differ from --speed: a state directory keeps its
    first."""
    at, speed = clock.now(), clock.speed
    return f"the market is at {at:%Y-%m-%d %H:%MZ}, {speed:g} times as fast as the wall"
