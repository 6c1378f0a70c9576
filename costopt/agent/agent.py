"""The agent's loop on a training node.

Each tick handles interruption notices and drains, follows the gang, watches the trainer and sends a
heartbeat when one is due.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

from costopt.agent.attempt import Attempt, CheckpointRelay
from costopt.agent.cached_data import CacheFetch
from costopt.agent.contact import Contact
from costopt.agent.data import Prefetch
from costopt.agent.gpu_health import GpuHealthMonitor
from costopt.agent.heartbeats import AgentState, HeartbeatSender
from costopt.agent.log_upload import LogUpload
from costopt.agent.membership_server import MembershipHost
from costopt.agent.meters import NodeMeter
from costopt.agent.node_commands import ExecRunner
from costopt.agent.notices.base import FileNoticeSource, NoNotices, Notice, NoticeSource
from costopt.agent.power_limit import PowerLimiter
from costopt.agent.power_probe import PowerProbes
from costopt.agent.preparation import NODE_ITSELF, NodePreparation, TrainerPlace
from costopt.agent.redaction import RedactedStore, Redactor
from costopt.agent.replicas import ReplicaService
from costopt.agent.secret_values import SecretReader
from costopt.agent.settings import AgentSettings
from costopt.agent.tasks import TaskRunner
from costopt.domain.errors import CostoptError, StoreError
from costopt.domain.object_store import ObjectStore
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Gang, NodeActivity
from costopt.protocol.node_commands import CommandBox
from costopt.protocol.node_logs import NodeLog
from costopt.protocol.stop_signals import handle_stop_signals
from costopt.protocol.trainer_files import StopNotice

LOG_FLUSH_TIMEOUT_S = 2.0
"""How long the report that training ended waits for its log: nodes are released after it."""


class Agent:
    """One node's agent. ``run`` returns after ``request_exit``, SIGTERM or SIGINT.

    Without ``notices`` no interruption is announced; without ``meter`` nothing is measured, without
    ``gpus`` the GPUs' health is unknown, without ``secrets`` none can be read.
    """

    def __init__(
        self,
        settings: AgentSettings,
        store: ObjectStore,
        notices: NoticeSource | None = None,
        meter: NodeMeter | None = None,
        gpus: GpuHealthMonitor | None = None,
        secrets: SecretReader | None = None,
    ) -> None:
        self.settings = settings
        self._secrets = secrets or SecretReader(None)
        self._redactor = Redactor()
        store = RedactedStore(store, self._redactor)
        self._mailbox = Mailbox(store, settings.job)
        self._notices = notices or NoNotices()
        self._meter = meter or NodeMeter(None, None)
        self._gpus = gpus
        self._news = CheckpointRelay(self._mailbox)
        self._pulse = HeartbeatSender(self._mailbox, settings.node_id, settings.heartbeat_s)
        self._power = PowerLimiter(settings.folder)
        self._probes = PowerProbes(self._power)
        self._host = MembershipHost(
            self._mailbox, settings.node_id, settings.host, settings.folder / "membership"
        )
        self._snapshots = ReplicaService(settings)
        self._log = _log_upload(settings, store)
        self._commands = ExecRunner(
            CommandBox(store, settings.job), settings.node_id, self._command_folder
        )
        self._leaving = threading.Event()
        self._attempt: Attempt | TaskRunner | None = None
        self._data: Prefetch | None = None
        self._cache: CacheFetch | None = None
        self._setup: NodePreparation | None = None
        self._noticed = False
        self._interrupts_at: float | None = None
        self._gone = False
        self._failure = ""
        self._contact = None if settings.contact is None else Contact(settings.contact)
        self._contact_error = ""

    def request_exit(self) -> None:
        """Save, stop the trainer and end the loop."""
        self._leaving.set()

    def run(self) -> None:
        """Serve until asked to leave; the trainer's processes never outlive this call."""
        self.settings.folder.mkdir(parents=True, exist_ok=True)
        self._notices.start()
        self._meter.start()
        if self._gpus is not None:
            self._gpus.start()
        if self._log is not None:
            self._log.start()
        try:
            asks = {signal.SIGTERM, signal.SIGINT} - self._notices.signals
            with handle_stop_signals(lambda _: self.request_exit(), asks):
                while not self._leaving.wait(self.settings.poll_s):
                    self.tick()
                    self._leave_if_alone()
                self._depart()
        finally:
            if self._gpus is not None:
                self._gpus.close()
            for fetch in (self._data, self._cache):
                if fetch is not None:
                    fetch.close()
            if self._attempt is not None:
                self._attempt.kill()
            if self._setup is not None:
                self._setup.close()
            if self._log is not None:
                self._log.close(LOG_FLUSH_TIMEOUT_S)
            self._commands.close()
            self._host.close()
            self._snapshots.close()
            self._power.restore()
            self._notices.close()  # last: an announced signal may come again

    def tick(self) -> None:
        """Do one round of the loop. A store that does not answer never stops training."""
        try:
            self._handle_notice()
            self._follow_gang()
            if not self._noticed and self._notices.notice() is not None:
                self._handle_notice()  # a signal may have reached the trainer, too: it did not fail
            self._watch()
            self._beat()
            self._commands.poll()
            self._leave_if_noticed()
        except StoreError as error:
            _say(str(error))
        else:
            if self._contact is not None:
                self._contact.note_store()

    def _leave_if_alone(self) -> None:
        contact, limit = self._contact, self.settings.contact
        if contact is None or limit is None:
            return
        if contact.is_lost():
            _say(
                f"neither controller nor store was heard of for {limit.max_unreachable_s:g} s: "
                "this node saves and ends"
            )
            self.request_exit()
        if contact.error != self._contact_error:
            self._contact_error = contact.error
            if contact.error:
                _say(contact.error)

    def _handle_notice(self) -> None:
        notice = self._notices.notice()
        drain = notice is None and self._mailbox.is_drain_requested(self.settings.node_id)
        noticed = notice is not None or drain
        if noticed and not self._noticed:
            self._send_log()
        self._noticed = noticed
        if notice is not None and self._interrupts_at is None:
            self._interrupts_at = notice.deadline_at or time.time()
        if self._attempt is not None and self._noticed:
            self._attempt.ask_stop(self._stop_notice(notice))
        failure = self._notices.error()
        if failure and failure != self._failure:
            _say(f"interruption notices are unavailable: {failure}")
        self._failure = failure

    def _leave_if_noticed(self) -> None:
        """Leave once training has ended if the notice was a signal: the node may be waited for."""
        trains = self._attempt is not None and self._attempt.activity.is_training
        if self._notices.signals and self._interrupts_at is not None and not trains:
            self.request_exit()

    def _send_log(self, within_s: float = 0.0) -> None:
        """Send the log as it is now if uploads are on; wait ``within_s`` seconds at most."""
        if self._log is not None:
            self._log.flush(within_s)

    def _stop_notice(self, notice: Notice | None) -> StopNotice:
        if notice is None:
            return StopNotice("drain")
        upload = None if self._attempt is None else self._attempt.upload_bytes_per_s
        return StopNotice(f"notice: {notice.action}", notice.time, notice.deadline_at, upload)

    def _follow_gang(self) -> None:
        gang, attempt = self._mailbox.gang(), self._attempt
        if gang is None:
            return
        if gang.task_slots:
            self._follow_array(gang)
            return
        assert not isinstance(attempt, TaskRunner), "a job's work is either an array or not"
        self._snapshots.open(gang)
        if (
            attempt is not None
            and gang.generation > attempt.gang.generation
            and attempt.continues_in(gang)
        ):
            attempt.adopt(gang)
            self._power.apply(gang.power_cap_w)
            self._host.ensure_running(gang, attempt.peers)
            self._snapshots.follow(gang, attempt.peers)
        elif attempt is None or gang.generation > attempt.gang.generation:
            if attempt is not None and not attempt.hand_over(gang):
                return
            self._power.restore()
            self._send_log()
            attempt = self._attempt = self._attempt_for(gang)
        elif gang.generation == attempt.gang.generation:
            self._apply_power_cap(attempt, gang)
        if attempt.waits_to_start and not self._noticed:
            self._start(attempt)

    def _follow_array(self, gang: Gang) -> None:
        tasks = self._attempt
        if not isinstance(tasks, TaskRunner):
            tasks = self._attempt = TaskRunner(gang, self.settings, self._mailbox)
            self._power.apply(gang.power_cap_w)
        elif gang.power_cap_w != tasks.gang.power_cap_w:
            self._power.apply(gang.power_cap_w)
        tasks.adopt(gang)
        place = self._place_for(tasks, gang)
        if place is not None:
            tasks.start(self._data_dir, self._cache_dir, place)

    def _start(self, attempt: Attempt) -> None:
        place = self._place_for(attempt, attempt.gang)
        if place is None:
            return
        saving = attempt.is_waiting()
        if saving is not None:
            attempt.wait(f"{saving} is still saving")
            return
        self._power.apply(attempt.gang.power_cap_w)
        attempt.peers.poll()
        self._snapshots.follow(attempt.gang, attempt.peers)
        attempt.start(
            self._data_dir,
            self._host.address,
            self._snapshots.socket_server,
            self._cache_dir,
            place,
        )

    def _place_for(self, work: Attempt | TaskRunner, gang: Gang) -> TrainerPlace | None:
        """Return where the command runs once node, data and cache are ready; else ``work`` waits,
        or has failed where the node cannot run the command."""
        setup = self._setup_of(gang)
        fetches = self._fetches(work)
        if setup is None or fetches:
            return None if fetches else NODE_ITSELF
        if setup.failure:
            work.fail(setup.failure)
        elif setup.place is None:
            work.wait(setup.message)
        return setup.place

    def _fetches(self, attempt: Attempt | TaskRunner) -> bool:
        """Whether this node still fetches what has to be on its disk before training."""
        data, cache = self._data_of(attempt.gang), self._cache_of(attempt.gang)
        if cache is not None and cache.failure is not None:
            attempt.fail(cache.failure)
            self._cache = None
            return True
        if cache is not None and cache.report is None:
            attempt.wait(cache.message)
        elif data is not None and not data.done:
            attempt.wait(data.message)
        else:
            return False
        return True

    @property
    def _data_dir(self) -> Path | None:
        return None if self._data is None else self._data.directory

    @property
    def _cache_dir(self) -> Path | None:
        return None if self._cache is None else self._cache.directory

    def _cache_of(self, gang: Gang) -> CacheFetch | None:
        if not gang.cache:
            return None
        if self._cache is None or self._cache.sources != gang.cache:
            folder = self.settings.data_folder or self.settings.folder
            self._cache = CacheFetch(gang.cache, folder / "cache")
        return self._cache

    def _command_folder(self) -> str:
        """Return the job's folder, before the first gang the agent's."""
        work, settings = self._attempt, self.settings
        folder = str(settings.folder) if work is None else settings.place(work.gang.workdir)
        return folder if Path(folder).is_dir() else str(settings.folder)

    def _setup_of(self, gang: Gang) -> NodePreparation | None:
        """Return the preparation of this node, begun again in a generation after it failed, or
        where the job needs another."""
        if gang.image is None and not gang.setup and not gang.secrets:
            return None
        setup, settings = self._setup, self.settings
        newer = setup is not None and gang.generation > setup.gang.generation
        if setup is not None and newer and (setup.failure or not setup.suits(gang)):
            setup.close()
            setup = None
        if setup is None:
            workdir = settings.place(gang.workdir)
            setup = NodePreparation(gang, workdir, settings.folder, self._secrets, self._redactor)
            self._setup = setup
        return setup

    def _data_of(self, gang: Gang) -> Prefetch | None:
        """Return the prefetch of the job's data to this node's disk, None if they stay remote."""
        folder = self.settings.data_folder
        if folder is None or gang.data_uri is None:
            return None
        if self._data is None or self._data.uri != gang.data_uri:
            self._data = Prefetch(gang.data_uri, folder, self.settings.data_max_bytes)
        return self._data

    def _attempt_for(self, gang: Gang) -> Attempt:
        if isinstance(self._notices, FileNoticeSource):
            self._notices.speed = gang.speed
        upload = None if self._attempt is None else self._attempt.upload_bytes_per_s
        return Attempt(gang, self.settings, self._mailbox, self._news, upload)

    def _apply_power_cap(self, attempt: Attempt, gang: Gang) -> None:
        """Apply what changed within a generation at once: training goes on."""
        before_w, attempt.gang = attempt.gang.power_cap_w, gang
        if gang.power_cap_w != before_w and attempt.trainer is not None:
            self._power.apply(gang.power_cap_w)

    def _watch(self) -> None:
        attempt = self._attempt
        if attempt is None:
            return
        if isinstance(attempt, TaskRunner):
            attempt.watch()
            self._meter.training = attempt.activity is NodeActivity.TRAINING
            return
        ran = attempt.trainer is not None
        attempt.watch()
        if self._pulse.is_due():
            attempt.watch_peers()
            self._snapshots.follow(attempt.gang, attempt.peers)
            if attempt.gang.elastic:
                self._host.ensure_running(attempt.gang, attempt.peers)
        if ran and attempt.trainer is None:
            self._power.restore()
            self._send_log(LOG_FLUSH_TIMEOUT_S)
        if ran and attempt.activity is NodeActivity.FINISHED:
            self._snapshots.forget()
        self._probes.follow(attempt, self._meter.reading())
        trains = attempt.activity is NodeActivity.TRAINING
        self._meter.training = trains and not self._probes.is_running

    def _beat(self) -> None:
        self._pulse.send_if_due(
            self._state(), self._attempt, self._power, self._probes.report, self._meter.reading()
        )

    def _state(self) -> AgentState:
        activity, message = NodeActivity.IDLE, ""
        if self._gone:
            activity, message = NodeActivity.GONE, "the agent left"
        elif self._attempt is not None:
            activity, message = self._attempt.activity, self._attempt.message
        elif self._noticed:
            activity, message = NodeActivity.STOPPED, "asked to leave before training began"
        warning = self._notices.rebalance_warning()
        return AgentState(
            activity,
            message,
            self._noticed,
            warning,
            self._interrupts_at,
            self._snapshots.address,
            None if self._gpus is None else self._gpus.reading(),
            None if self._cache is None else self._cache.report,
        )

    def _depart(self) -> None:
        """Let the trainer save within its grace period, then send a last heartbeat."""
        attempt = self._attempt
        try:
            if attempt is not None and attempt.trainer is not None:
                attempt.ask_stop(StopNotice("the agent leaves"))
                deadline = time.monotonic() + self.settings.grace_s
                while attempt.trainer is not None and time.monotonic() < deadline:
                    self._watch_departure(attempt)
                    time.sleep(self.settings.poll_s)
            self._meter.close()
            self._gone = True
            self._beat()
        except CostoptError as error:
            _say(str(error))

    def _watch_departure(self, attempt: Attempt | TaskRunner) -> None:
        """Watch the trainer and send heartbeats: a node that is waited for is alive."""
        try:
            attempt.watch()
            self._beat()
        except StoreError as error:
            _say(str(error))


def _log_upload(settings: AgentSettings, store: ObjectStore) -> LogUpload | None:
    if settings.logs_s is None:
        return None
    log = NodeLog(store, settings.job, settings.node_id)
    return LogUpload(log, settings.folder, settings.logs_s)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
