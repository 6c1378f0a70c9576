"""The loop on a training node: follow the gang, run the trainer, heed notices, heartbeat."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from pathlib import Path

from costopt.agent.gang import Gang, Rendezvous
from costopt.agent.heartbeat import CommandFailure, Heartbeat, NodeActivity
from costopt.agent.launcher import launch_spec
from costopt.agent.leave_signals import leaving_on_signals
from costopt.agent.mailbox import Mailbox
from costopt.agent.notice import read_notice
from costopt.agent.peers import Peers
from costopt.agent.power_limit import PowerLimit
from costopt.agent.settings import AgentSettings
from costopt.agent.status import TrainerState, TrainerStatus
from costopt.agent.trainer import Trainer
from costopt.agent.trainer_env import TrainerEnv
from costopt.domain.errors import CostoptError, StoreError
from costopt.domain.ports import ObjectStore

SILENT_TRAINER_S = 30.0


class Agent:
    """One node's agent. ``run`` returns when ``leave`` was called or on SIGTERM and SIGINT."""

    def __init__(self, settings: AgentSettings, store: ObjectStore) -> None:
        self.settings = settings
        self._mailbox = Mailbox(store, settings.job)
        self._leaving = threading.Event()
        self._gang: Gang | None = None
        self._trainer: Trainer | None = None
        self._peers = Peers(self._mailbox, ())
        self._activity = NodeActivity.IDLE
        self._status: TrainerStatus | None = None
        self._failed_at: float | None = None
        self._exit_code: int | None = None
        self._message = ""
        self._power = PowerLimit(settings.folder)
        self._noticed = False
        self._published: set[str] = set()
        self._beat = 0
        self._beaten_at = -1e9

    def leave(self) -> None:
        """Save, stop the trainer and end the loop."""
        self._leaving.set()

    def run(self) -> None:
        """Serve until told to leave; the trainer's processes never outlive this call."""
        self.settings.folder.mkdir(parents=True, exist_ok=True)
        try:
            with leaving_on_signals(self.leave):
                while not self._leaving.wait(self.settings.poll_s):
                    self.tick()
                self._depart()
        finally:
            if self._trainer is not None:
                self._trainer.kill()
            self._power.take_off()

    def tick(self) -> None:
        """Look at everything once. A store that does not answer is no reason to stop training."""
        try:
            self._heed_notice()
            self._heed_gang()
            self._watch_trainer()
            self._watch_peers()
            self._beat_if_due()
        except StoreError as error:
            print(error, file=sys.stderr, flush=True)  # noqa: T201

    def _heed_notice(self) -> None:
        notice = read_notice(self.settings.notice_file)
        drain = notice is None and self._mailbox.drain_asked(self.settings.node_id)
        self._noticed = notice is not None or drain
        if self._trainer is None:
            if self._noticed and self._activity in (NodeActivity.IDLE, NodeActivity.STARTING):
                self._turn(NodeActivity.STOPPED, "asked to leave before training began")
            return
        if notice is not None:
            self._trainer.ask_stop(f"notice: {notice.action}", notice.time)
        elif drain:
            self._trainer.ask_stop("drain")

    def _heed_gang(self) -> None:
        gang = self._mailbox.gang()
        if gang is None or (self._gang is not None and gang.generation <= self._gang.generation):
            self._heed_power(gang)
            self._start_if_ready()
            return
        if self._trainer is not None and not self._hand_over(self._trainer):
            return
        self._gang, self._trainer, self._status = gang, None, None
        self._failed_at = self._exit_code = None
        others = tuple(m for m in gang.members if m != self.settings.node_id)
        self._peers = Peers(self._mailbox, others)
        member = gang.rank(self.settings.node_id) is not None
        self._turn(NodeActivity.STARTING if member else NodeActivity.IDLE, "")
        self._start_if_ready()

    def _heed_power(self, gang: Gang | None) -> None:
        """A power limit that changed within a generation holds at once: training goes on."""
        if gang is None or self._gang is None or gang.generation != self._gang.generation:
            return
        if gang.power_cap_w != self._gang.power_cap_w:
            self._gang = gang
            if self._trainer is not None:
                self._limit_power(gang)

    def _limit_power(self, gang: Gang) -> None:
        """A limit that cannot be set is told and does not stop the training."""
        self._power.keep_to(gang.power_cap_w)
        self._beaten_at = -1e9

    def _hand_over(self, trainer: Trainer) -> bool:
        """Let the old generation's trainer save and stop; True once it is gone."""
        trainer.ask_stop("a new generation")
        asked_at = trainer.stop_asked_at or 0.0
        overdue = time.monotonic() - asked_at > self.settings.handover_s
        if trainer.exit_code() is None and not overdue:
            return False
        trainer.kill()
        self._power.take_off()
        self._read_status(trainer)
        return True

    def _start_if_ready(self) -> None:
        gang = self._gang
        waits = self._activity is NodeActivity.STARTING and self._trainer is None
        if gang is None or not waits or self._noticed or self._failed_at is not None:
            return
        rendezvous = self._meet(gang)
        if rendezvous is not None:
            self._start(gang, rendezvous)

    def _meet(self, gang: Gang) -> Rendezvous | None:
        if gang.rank(self.settings.node_id) == 0:
            rendezvous = Rendezvous(gang.generation, self.settings.host, _free_port())
            self._mailbox.post_rendezvous(rendezvous)
            return rendezvous
        return self._mailbox.rendezvous(gang.generation)

    def _start(self, gang: Gang, rendezvous: Rendezvous) -> None:
        settings = self.settings
        tag = f"{gang.generation:06d}"
        env = TrainerEnv(
            job=gang.job,
            node=settings.node_id,
            generation=gang.generation,
            notice_file=settings.folder / f"notice-{tag}.json",
            status_file=settings.folder / f"status-{tag}.json",
            checkpoint_uri=gang.checkpoint_uri,
            checkpoint_interval_s=gang.checkpoint_interval_s,
            hazard_per_hour=gang.hazard_per_hour,
            noticed_share=gang.noticed_share,
            speed=gang.speed,
            total_units=gang.total_units,
        )
        log_path = settings.folder / f"trainer-{tag}.log"
        self._limit_power(gang)
        try:
            spec = launch_spec(
                gang,
                settings.node_id,
                rendezvous,
                launcher=settings.launcher,
                processes=settings.processes,
                agent_pid=os.getpid(),
            )
            self._trainer = Trainer(
                spec,
                env.variables(),
                workdir=gang.workdir,
                status_file=settings.folder / f"status-{tag}.json",
                notice_file=settings.folder / f"notice-{tag}.json",
                log_path=log_path,
            )
        except OSError as error:
            self._exit_code = 127
            self._blame_command(gang, f"cannot start in {gang.workdir}: {error}", log_path)

    def _watch_trainer(self) -> None:
        trainer = self._trainer
        if trainer is None:
            return
        self._read_status(trainer)
        code = trainer.exit_code()
        if code is not None:
            self._take_leave_of(trainer, code)
        elif self._status is not None and self._status.state is TrainerState.STOPPED:
            self._turn(NodeActivity.STOPPED, self._status_message())
        elif trainer.stop_asked_at is not None:
            self._turn(NodeActivity.STOPPING, self._message)
            if time.monotonic() - trainer.stop_asked_at > self.settings.grace_s:
                trainer.kill()
        else:
            self._turn(self._trainer_activity(trainer), self._status_message())

    def _read_status(self, trainer: Trainer) -> None:
        self._status = trainer.status() or self._status
        if self._status is None:
            return
        for checkpoint in self._status.checkpoints:
            if checkpoint.name not in self._published:
                self._mailbox.post_checkpoint(checkpoint)
                self._published.add(checkpoint.name)
        for refused in self._status.refused:
            self._mailbox.post_refused(refused)

    def _trainer_activity(self, trainer: Trainer) -> NodeActivity:
        """A command that tells nothing of itself is taken to train once it has lasted."""
        if self._status is None:
            quiet = trainer.age_s() > SILENT_TRAINER_S
            return NodeActivity.TRAINING if quiet else NodeActivity.STARTING
        if self._status.state is TrainerState.STARTING:
            return NodeActivity.STARTING
        return NodeActivity.TRAINING

    def _take_leave_of(self, trainer: Trainer, code: int) -> None:
        """The trainer has ended: say how."""
        self._exit_code = code
        state = None if self._status is None else self._status.state
        asked = trainer.stop_asked_at is not None
        if code == 0 and (state is TrainerState.FINISHED or (state is None and not asked)):
            self._end_trainer(NodeActivity.FINISHED, self._status_message())
        elif code == 0 and state is TrainerState.STOPPED:
            self._end_trainer(NodeActivity.STOPPED, self._status_message())
        elif asked:
            self._end_trainer(NodeActivity.STOPPED, f"left with {code} before it had saved")
        else:
            self._judge_failure(trainer, code)

    def _judge_failure(self, trainer: Trainer, code: int) -> None:
        """Blame the gang where a peer is gone or leaving, else, after a while, the command."""
        gang, now = self._gang, time.monotonic()
        if gang is None:
            return
        if self._failed_at is None:
            self._failed_at = now
            self._turn(NodeActivity.STOPPING, f"exited with {code}: is a member gone?")
        self._peers.look()
        leaving = self._peers.leaving()
        if leaving is not None:
            self._end_trainer(NodeActivity.BROKEN, leaving)
        elif len(gang.members) == 1 or now - self._failed_at > self.settings.judge_s:
            lost = self._peers.lost(since=self._failed_at + self.settings.judge_s / 2)
            if lost is not None:
                self._end_trainer(NodeActivity.BROKEN, lost)
            else:
                self._blame_command(gang, self._complaint(trainer, code), trainer.log_path)

    def _complaint(self, trainer: Trainer, code: int) -> str:
        if code == 0:
            done = 0.0 if self._status is None else self._status.done_units
            return f"it ended at {done:g} of {self._gang.total_units if self._gang else 0} units"
        return trainer.error() or f"signal {-code}" if code < 0 else trainer.error()

    def _blame_command(self, gang: Gang, message: str, log_path: Path) -> None:
        self._mailbox.post_failure(
            CommandFailure(
                node_id=self.settings.node_id,
                generation=gang.generation,
                exit_code=self._exit_code or 0,
                at=time.time(),
                saved_units=0.0 if self._status is None else self._status.saved_units,
                message=message,
                log_path=str(log_path),
            )
        )
        self._end_trainer(NodeActivity.FAILED, message)

    def _end_trainer(self, activity: NodeActivity, message: str) -> None:
        if self._trainer is not None:
            self._trainer.kill()
        self._trainer = None
        self._power.take_off()
        self._turn(activity, message)

    def _watch_peers(self) -> None:
        """A peer that falls silent leaves the trainer waiting for it: break the gang instead."""
        if self._trainer is None or self._failed_at is not None or not self._beat_is_due():
            return
        self._peers.look()
        lost = self._peers.lost(since=time.monotonic() - self.settings.peer_silent_s)
        if lost is not None:
            self._end_trainer(NodeActivity.BROKEN, lost)

    def _turn(self, activity: NodeActivity, message: str) -> None:
        """Take up an activity, and tell of it at once where it is a new one."""
        self._message = message
        if activity is not self._activity:
            self._activity = activity
            self._beaten_at = -1e9

    def _status_message(self) -> str:
        return "" if self._status is None else self._status.message

    def _beat_is_due(self) -> bool:
        return time.monotonic() - self._beaten_at >= self.settings.heartbeat_s

    def _beat_if_due(self) -> None:
        if not self._beat_is_due():
            return
        self._beaten_at = time.monotonic()
        self._beat += 1
        status = self._status
        log_path = "" if self._trainer is None else str(self._trainer.log_path)
        self._mailbox.post_heartbeat(
            Heartbeat(
                node_id=self.settings.node_id,
                generation=0 if self._gang is None else self._gang.generation,
                state=self._activity,
                at=time.time(),
                beat=self._beat,
                reported=status is not None,
                done_units=0.0 if status is None else status.done_units,
                saved_units=0.0 if status is None else status.saved_units,
                units_per_s=None if status is None else status.units_per_s,
                exit_code=self._exit_code,
                message=self._message,
                log_path=log_path,
                guarantee="" if status is None else status.guarantee,
                notice=self._noticed,
                power_asked_w=self._power.asked_w,
                power_cap_w=self._power.cap_w,
                power_message=self._power.message,
            )
        )

    def _depart(self) -> None:
        """Give the trainer its grace to save, then say goodbye."""
        if self._trainer is not None:
            self._trainer.ask_stop("the agent leaves")
            deadline = time.monotonic() + self.settings.grace_s
            while self._trainer is not None and time.monotonic() < deadline:
                self._watch_trainer()
                time.sleep(self.settings.poll_s)
        try:
            self._turn(NodeActivity.GONE, "the agent left")
            self._beat_if_due()
        except CostoptError as error:
            print(error, file=sys.stderr, flush=True)  # noqa: T201


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
