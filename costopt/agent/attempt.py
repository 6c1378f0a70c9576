"""One generation of the gang on one node: where its members meet, the command's run, and its end.

Rank 0's agent chooses the rendezvous and posts it; the others wait for it. What the trainer reports
of its checkpoints is relayed to the controller, each checkpoint once.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from costopt.agent.exit_watch import ExitWatch
from costopt.agent.launch_spec import process_specs
from costopt.agent.peers import PeerMonitor
from costopt.agent.place_check import another_job_reason
from costopt.agent.preparation import NODE_ITSELF, TrainerPlace
from costopt.agent.restarts import TrainerRestarts
from costopt.agent.settings import AgentSettings
from costopt.agent.trainer import Trainer
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import CommandFailure, Gang, NodeActivity, Rendezvous
from costopt.protocol.trainer_files import StopNotice, TrainerEnv, TrainerState, TrainerStatus

TRAINER_TIMEOUT_S = 30.0
SIGTERM_EXIT_CODES = (0, -signal.SIGTERM, 128 + signal.SIGTERM)


class Attempt:
    """What the agent does for ``gang``; ``activity`` and ``message`` are its state.

    ``status`` is the trainer's newest report, ``upload_bytes_per_s`` the speed of the newest upload
    that this node has seen. Methods raise StoreError if the mailbox does not answer; the next call
    does what remained undone.
    """

    def __init__(
        self,
        gang: Gang,
        settings: AgentSettings,
        mailbox: Mailbox,
        news: CheckpointRelay,
        upload_bytes_per_s: float | None = None,
    ) -> None:
        self.gang = gang
        self.settings = settings
        self.trainer: Trainer | None = None
        self.status: TrainerStatus | None = None
        self.started = False
        self.exit_code: int | None = None
        self.restarts = 0
        self.upload_bytes_per_s = upload_bytes_per_s
        self.message = ""
        member = gang.rank(settings.node_id) is not None
        self.activity = NodeActivity.STARTING if member else NodeActivity.IDLE
        self.peers = PeerMonitor(mailbox, tuple(m for m in gang.members if m != settings.node_id))
        self._former = PeerMonitor(mailbox, gang.former)
        self._former_until = time.monotonic() + settings.grace_s
        self._mailbox = mailbox
        self._news = news
        self._failed_at: float | None = None
        self._brought_units: float | None = None
        self._lay_there: frozenset[str] = frozenset()
        self._found_units: float | None = None
        self._tag = f"{gang.generation:06d}"
        self._revivals = TrainerRestarts(settings)
        self._exit = ExitWatch(settings.exit_s)

    @property
    def log_path(self) -> str:
        """Return the running command's log file, or "" if no command runs."""
        return "" if self.trainer is None else str(self.trainer.log_path)

    @property
    def waits_to_start(self) -> bool:
        """Whether the command has yet to be started on this node."""
        return self.activity is NodeActivity.STARTING and self.trainer is None

    def continues_in(self, gang: Gang) -> bool:
        """Whether the running trainer also belongs to the new gang: both gangs are elastic."""
        trainer, member = self.trainer, gang.rank(self.settings.node_id) is not None
        if trainer is None or not (self.gang.elastic and gang.elastic and member):
            return False
        return trainer.stop_asked_at is None and trainer.exit_code() is None

    def adopt(self, gang: Gang) -> None:
        """Switch to a newer gang in which the trainer continues, or first begins."""
        if self.status is None or self.status.state is TrainerState.STARTING:
            self._lay_there = self._mailbox.checkpoint_keys()
        else:
            self._brought_units = self.status.done_units
        self.gang = gang
        others = tuple(m for m in gang.members if m != self.settings.node_id)
        self.peers = PeerMonitor(self._mailbox, others)

    @property
    def resumed_units(self) -> float | None:
        """Return the work that the trainer had when it joined this gang; None before that.

        A trainer that does not report it is assumed to begin with the newest checkpoint then
        stored.
        """
        if self._brought_units is not None or self.status is None:
            return self._brought_units
        reported, began = self.status.resumed_units, self.status.state is not TrainerState.STARTING
        return self._found() if reported is None and began else reported

    def ask_stop(self, notice: StopNotice) -> None:
        """Ask the trainer to save and stop; if none has started yet, none will be."""
        if self.trainer is not None:
            self.trainer.request_stop(notice)
        elif self.activity in (NodeActivity.IDLE, NodeActivity.STARTING):
            self.end(NodeActivity.STOPPED, "asked to leave before training began")

    def is_waiting(self) -> str | None:
        """Return a node of the previous gang that is still saving the state this gang resumes from.

        Return None if there is none, or if it has taken too long.
        """
        now = time.monotonic()
        if now > self._former_until:
            return None
        self._former.poll()
        return self._former.training_peers(
            self.gang.generation, since=now - self.settings.peer_silent_s
        )

    def wait(self, message: str) -> None:
        """Report what the start waits for."""
        self.message = message

    def fail(self, message: str) -> None:
        """End the start: what it waits for is unavailable."""
        self.exit_code = 127
        self._blame_command(message, self._file("trainer", "log"))

    def start(
        self,
        data_dir: Path | None = None,
        membership: str | None = None,
        snapshots: str | None = None,
        cache_dir: Path | None = None,
        place: TrainerPlace = NODE_ITSELF,
    ) -> None:
        """Start the command in ``place`` once the gang has a rendezvous.

        The job's data are in ``data_dir``, what its cache names in ``cache_dir``; snapshots go to
        the socket ``snapshots``.
        """
        settings = self.settings
        rendezvous = await_rendezvous(self.gang, settings.node_id, settings.host, self._mailbox)
        if rendezvous is None:
            return
        refusal = another_job_reason(self.gang)
        if refusal is not None:
            self.fail(refusal)
            return
        self._lay_there = self._mailbox.checkpoint_keys()
        try:
            self.trainer = self._started(
                rendezvous, data_dir, membership, snapshots, cache_dir, place
            )
            self.started = True
        except (OSError, ValueError) as error:  # ValueError: a null byte in the command
            self.fail(f"cannot start in {settings.place(self.gang.workdir)}: {error}")

    def watch(self) -> None:
        """Record the trainer's status and whether it still runs."""
        trainer = self.trainer
        if trainer is None:
            return
        self._read_status(trainer)
        code = trainer.exit_code()
        if code and trainer.stop_asked_at is None and self._revived(trainer, code):
            return
        if code is not None:
            self._handle_departures(trainer, code)
        elif self.status is not None and self.status.state is TrainerState.STOPPED:
            self._set_activity(NodeActivity.STOPPED, self._status_message())
        elif trainer.stop_asked_at is not None:
            self._set_activity(NodeActivity.STOPPING, self.message)
            if time.monotonic() - trainer.stop_asked_at > self.settings.grace_s:
                trainer.kill()
        elif self._is_done and self._exit.is_hung(trainer):
            idle = f"it was done and did not exit: ended after {self._exit.limit_s:g} idle seconds"
            self.end(NodeActivity.FINISHED, idle)
        else:
            self._set_activity(self._trainer_activity(trainer), self._status_message())
            if self.gang.elastic and self.gang.image is None and not self.gang.secrets:
                self._revivals.prepare_standby(self.gang)

    def watch_peers(self) -> None:
        """Break the gang if a peer is unreachable: its trainer would wait for that peer forever.

        An elastic gang recovers without help, but its membership host is watched to the end.
        """
        if self.gang.elastic:
            self.peers.poll()
            return
        if self.trainer is None or self._failed_at is not None:
            return
        self.peers.poll()
        lost = self.peers.lost(since=time.monotonic() - self.settings.peer_silent_s)
        if lost is not None:
            self.end(NodeActivity.BROKEN, lost)

    def hand_over(self, gang: Gang) -> bool:
        """Let the trainer save and stop for a new generation; return True once it has ended.

        A trainer that is not in the new gang may take the whole grace period to save.
        """
        trainer = self.trainer
        if trainer is None:
            return True
        trainer.request_stop(StopNotice("a new generation"))
        settings = self.settings
        goes = gang.rank(settings.node_id) is None
        patience_s = settings.grace_s if goes else settings.handover_s
        overdue = time.monotonic() - (trainer.stop_asked_at or 0.0) > patience_s
        if trainer.exit_code() is None and not overdue:
            return False
        trainer.kill()
        self._read_status(trainer)
        return True

    def end(self, activity: NodeActivity, message: str) -> None:
        """Kill what still runs and finish this generation on this node."""
        self.kill()
        self.trainer = None
        self._set_activity(activity, message)

    def kill(self) -> None:
        """Send SIGKILL to every process that the command started."""
        self._revivals.close()
        if self.trainer is not None:
            self.trainer.kill()

    def _found(self) -> float:
        """Read once, and only for a trainer that does not report it: there may be thousands of
        messages.
        """
        if self._found_units is None:
            self._found_units = self._mailbox.saved_units(self._lay_there)
        return self._found_units

    def _revived(self, trainer: Trainer, code: int) -> bool:
        """Restart a failed elastic trainer while its peers train on; return False if that cannot
        help.
        """
        if not self.gang.elastic or not self._revivals.restart(trainer):
            return False
        self.restarts += 1
        print(  # noqa: T201
            f"a trainer exited with {code}; started again, {self.restarts} so far in this gang",
            file=sys.stderr,
            flush=True,
        )
        return True

    def _started(
        self,
        rendezvous: Rendezvous,
        data_dir: Path | None,
        membership: str | None,
        snapshots: str | None,
        cache_dir: Path | None,
        place: TrainerPlace,
    ) -> Trainer:
        gang, settings = self.gang, self.settings
        env = TrainerEnv(
            job=gang.job,
            node=settings.node_id,
            owner=gang.owner,
            tenant=gang.tenant,
            generation=gang.generation,
            notice_file=self._file("notice", "json"),
            status_file=self._file("status", "json"),
            checkpoint_uri=gang.checkpoint_uri,
            checkpoint_interval_s=gang.checkpoint_interval_s,
            hazard_per_hour=gang.hazard_per_hour,
            save_paid_s=gang.save_paid_s,
            noticed_share=gang.noticed_share,
            speed=gang.speed,
            total_units=gang.total_units,
            data_dir=data_dir,
            cache_dir=cache_dir,
            membership=membership if gang.elastic else None,
            upload_bytes_per_s=self.upload_bytes_per_s,
            snapshots=snapshots,
        )
        specs = process_specs(
            gang,
            settings.node_id,
            rendezvous,
            launcher=settings.launcher,
            processes=settings.processes,
            interpreter=place.interpreter(gang.command),
        )
        return Trainer(
            specs,
            {**env.variables(), **place.variables},
            workdir=settings.place(gang.workdir),
            status_file=self._file("status", "json"),
            notice_file=self._file("notice", "json"),
            log_path=self._file("trainer", "log"),
            container=place.container(gang, settings.folder, data_dir, cache_dir),
            redactor=place.redactor,
        )

    def _file(self, name: str, suffix: str) -> Path:
        return self.settings.folder / f"{name}-{self._tag}.{suffix}"

    def _read_status(self, trainer: Trainer) -> None:
        self.status = trainer.status() or self.status
        if self.status is not None:
            self.upload_bytes_per_s = self.status.measured_upload or self.upload_bytes_per_s
            self._news.relay(self.status, self.gang.generation)

    def _trainer_activity(self, trainer: Trainer) -> NodeActivity:
        """A command that reports no status counts as training once it has run for a while."""
        if self.status is None:
            quiet = trainer.age_s() > TRAINER_TIMEOUT_S
            return NodeActivity.TRAINING if quiet else NodeActivity.STARTING
        if self.status.state is TrainerState.STARTING:
            return NodeActivity.STARTING
        return NodeActivity.TRAINING

    @property
    def _is_done(self) -> bool:
        """Whether the trainer has reported that all work is done and saved."""
        return self.status is not None and self.status.state is TrainerState.FINISHED

    def _handle_departures(self, trainer: Trainer, code: int) -> None:
        """Record how the trainer ended."""
        self.exit_code = code
        state = None if self.status is None else self.status.state
        asked = trainer.stop_asked_at is not None
        if code == 0 and (self._is_done or (state is None and not asked)):
            self.end(NodeActivity.FINISHED, self._status_message())
        elif code == 0 and state is TrainerState.STOPPED:
            self.end(NodeActivity.STOPPED, self._status_message())
        elif asked and state is None and code in SIGTERM_EXIT_CODES:
            self.end(NodeActivity.STOPPED, f"left with {code} on SIGTERM, by its own means")
        elif asked:
            self.end(NodeActivity.STOPPED, f"left with {code} before it had saved")
        else:
            self._judge_failure(trainer, code)

    def _judge_failure(self, trainer: Trainer, code: int) -> None:
        """Attribute the failure to a peer that is gone or leaving, else, after a while, to the
        command.
        """
        now, judge_s = time.monotonic(), self.settings.judge_s
        if self._failed_at is None:
            self._failed_at = now
            self._set_activity(NodeActivity.STOPPING, f"exited with {code}: is a member gone?")
        self.peers.poll()
        leaving = self.peers.leaving()
        if leaving is not None:
            self.end(NodeActivity.BROKEN, leaving)
        elif len(self.gang.members) == 1 or now - self._failed_at > judge_s:
            lost = self.peers.lost(since=self._failed_at + judge_s / 2)
            if lost is not None:
                self.end(NodeActivity.BROKEN, lost)
            else:
                self._blame_command(self._error_message(trainer, code), trainer.log_path)

    def _error_message(self, trainer: Trainer, code: int) -> str:
        if code == 0:
            done = 0.0 if self.status is None else self.status.done_units
            return f"it ended at {done:g} of {self.gang.total_units or 0} units"
        return trainer.error() or (f"signal {-code}" if code < 0 else "")

    def _blame_command(self, message: str, log_path: Path) -> None:
        self._mailbox.post_failure(
            CommandFailure(
                node_id=self.settings.node_id,
                generation=self.gang.generation,
                exit_code=self.exit_code or 0,
                at=time.time(),
                saved_units=0.0 if self.status is None else self.status.saved_units,
                message=message,
                log_path=str(log_path),
                done_units=None if self.status is None else self.status.done_units,
                ran_s=None if self.trainer is None else self.trainer.age_s(),
            )
        )
        self.end(NodeActivity.FAILED, message)

    def _set_activity(self, activity: NodeActivity, message: str) -> None:
        self.activity, self.message = activity, message

    def _status_message(self) -> str:
        return "" if self.status is None else self.status.message


def await_rendezvous(gang: Gang, node_id: str, host: str, mailbox: Mailbox) -> Rendezvous | None:
    """Return where the gang's generation meets, or None until rank 0 has posted it.

    The processes of an elastic gang meet through its membership; each node gives its trainers a
    local address, for libraries that require one. Raise StoreError if the store does not answer.
    """
    if gang.elastic:
        return Rendezvous(gang.generation, host, _free_port(host))
    if gang.rank(node_id) == 0:
        rendezvous = Rendezvous(gang.generation, host, _free_port(host))
        mailbox.post_rendezvous(rendezvous)
        return rendezvous
    return mailbox.rendezvous(gang.generation)


def _free_port(host: str) -> int:
    """Return a port that is free at this address, or at any if the address belongs to another
    machine.
    """
    with suppress(OSError):
        return _taken(host)
    return _taken("")


def _taken(host: str) -> int:
    with socket.create_server((host, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


class CheckpointRelay:
    """Relays checkpoint reports; remembers what was sent across all generations of one agent."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._reported: set[str] = set()
        self._refused: set[str] = set()

    def relay(self, status: TrainerStatus, generation: int) -> None:
        """Report new checkpoints to the controller. Raise StoreError if it cannot be reached."""
        for checkpoint in status.checkpoints:
            if checkpoint.name not in self._reported:
                self._mailbox.post_checkpoint(replace(checkpoint, generation=generation))
                self._reported.add(checkpoint.name)
        for refused in status.refused:
            if refused.name not in self._refused:
                self._mailbox.post_rejected_checkpoint(refused)
                self._refused.add(refused.name)
