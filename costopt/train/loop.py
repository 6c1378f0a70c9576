"""A training loop that resumes where it was, saves when a save is due and stops on notice.

``StopRequest`` says whether this process was asked to save and stop, by its agent's file or by
SIGTERM. ``LossMonitor`` notices a loss that is not a number, or far above those before it.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from costopt.checkpoint.commit import SupersededError
from costopt.domain.errors import CostoptError
from costopt.protocol.trainer_files import STATUS_FILE, StopNotice, TrainerState
from costopt.train.batches import ShardWorker
from costopt.train.checkpoint_manager import CheckpointManager
from costopt.train.elastic_group import ElasticGroup
from costopt.train.group import PeerLostError, RankGroup, StepAgreement, StepVote
from costopt.train.reporter import Reporter
from costopt.train.run_state import RunState, Stateful
from costopt.train.weight_check import WeightComparison

SIGTERM_EXIT = 143


class TrainingExit(SystemExit):
    """Raised by ``apply`` once the state is safe on a notice: the process ends here.

    The exit code is 0 under the agent, which knows the reason, else 143 as for any process ended by
    SIGTERM.
    """


@dataclass(frozen=True, slots=True)
class RegroupEvent:
    """A gang that this process joined while it ran.

    ``pause_s`` is from the loss of the old gang to the next step, ``why`` what ended the old one.
    """

    generation: int
    size: int
    step: int
    pause_s: float
    why: str


class TrainingLoop:
    """The loop that ``attach`` returns.

    ``steps`` yields the remaining steps; in each, ``microbatches`` and ``microbatch`` compute the
    shards that this process owns, and ``apply`` ends the step. If a peer was lost the step is
    yielded again. ``regrouped`` lists the gangs that were formed during the run.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        scheduler: Stateful | None,
        *,
        group: RankGroup,
        state: RunState,
        saving: CheckpointManager,
        work: ShardWorker,
        stop: StopRequest,
        reporter: Reporter,
        watch: LossMonitor | None = None,
        total_units: float | None = None,
        on_formed: Callable[[int], None] = lambda generation: None,  # noqa: ARG005
    ) -> None:
        self.total: int | None = None
        self.regrouped: list[RegroupEvent] = []
        self._model, self._optimizer = model, optimizer
        self._scheduler: Any = scheduler
        self._group, self._state, self._saving = group, state, saving
        self._work = work
        self._stop, self._reporter, self._watch = stop, reporter, watch
        self._total_units = total_units
        self._on_formed = on_formed
        self._weights = WeightComparison(model, getattr(group, "unit", None))
        self._turns = 0
        self._save_soon = False
        self._computing = 0
        if isinstance(group, ElasticGroup):
            self._form(group, None, failed=False)
        else:
            self._state.check_rank_conditions()
            self._restore()

    @property
    def step(self) -> int:
        """Return how many steps are done."""
        return self._state.step

    @property
    def loss(self) -> float | None:
        """Return the mean loss of the last step as passed to ``observe``; None if it was not."""
        return self._state.loss

    @property
    def guarantee(self) -> str:
        """Return "exact": bit for bit what an undisturbed run computes; else "close: " and why."""
        return str(self._state.guarantee)

    @property
    def rank(self) -> int:
        """Return this process' rank in the present gang."""
        return self._group.rank

    @property
    def size(self) -> int:
        """Return how many processes train now."""
        return self._group.size

    def steps(self, total: int) -> Iterator[int]:
        """Yield the steps from the job's present step up to ``total`` (exclusive).

        After the last step the state is saved and the loop ends; code after the loop runs only
        then. Raise CheckpointError if the state cannot be saved.
        """
        self._begin(total)
        while self.step < total:
            step, turns = self.step, self._turns
            self._reporter.on_start()
            self._computing = 0
            yield step
            if self._turns == turns:
                raise CostoptError(
                    f"step {step} ended without job.apply()",
                    hint="call job.apply() once in each iteration, after backward()",
                    code="no_apply",
                )
        self._finish()

    def microbatches(self) -> Iterator[Any]:
        """Yield the batches of the virtual shards that this process computes in this step."""
        batches = self._work.batches(self.step, self.step + self._state.skipped)
        while True:
            began = time.monotonic()
            batch = next(batches, batches)
            if batch is batches:
                return
            self._reporter.on_data_wait(time.monotonic() - began)
            self._computing += 1
            yield batch

    def microbatch(self, batch: Any) -> AbstractContextManager[None]:
        """Wrap forward and backward of one batch of ``microbatches``, and nothing else.

        Dropout and other draws depend on (seed, step, shard) alone. At the end the gradients are
        removed from the parameters.
        """
        return self._work.compute(batch)

    def observe(self, loss: float | Tensor) -> None:
        """Report the loss of the current microbatch.

        The mean over all is ``loss`` after ``apply``, the same bits on every rank.
        """
        self._work.observe(loss)

    def apply(self) -> None:
        """Average gradients over the ranks, clip, step, and save or stop if that is due.

        If a peer is lost meanwhile, form a new gang with the others and return: the step was not
        made, and is yielded again. Raise TrainingExit once the state is safe on a notice,
        CheckpointError after three failed saves.
        """
        self._turns += 1
        self._saving.copied()
        try:
            self._apply()
        except PeerLostError as error:
            self._regroup(str(error), failed=True)

    def _apply(self) -> None:
        if self._group.device.type == "cuda":  # kernels are launched ahead of their execution
            torch.cuda.synchronize()
        self._reporter.on_computed(self._computing)
        is_last = self.total is not None and self.step + 1 >= self.total
        vote = StepVote(
            stop=self._stop.is_requested(),
            save=self._saving.is_due() or self._save_soon,
            part=self._group.is_join_pending(),
            weights=self._weights.digest(self.step, self._group.size, whole=is_last),
        )
        vote = self._group.share_vote(vote)
        decision = self._work.reduce(vote)
        self._report_weights(decision.weights, vote.unit_weights)
        wrong = None if self._watch is None else self._watch.wrong(decision.loss)
        if wrong is not None:
            self._roll_back(wrong)
            return
        self._make_step(decision.loss)
        self._settle(decision, vote)

    def _report_weights(self, ranks: tuple[float, ...], unit: tuple[float, ...]) -> None:
        """Say who holds other weights than the rest: from now on the result is not exact."""
        for found in self._weights.find(ranks, unit, self.step):
            self._state.guarantee.void(found)
            self._saving.log_error(found)
            self._reporter.guarantees(self.guarantee, message=found)

    def _make_step(self, loss: float | None) -> None:
        self._saving.copied()
        if self._state.clip_norm is not None:
            self._work.clip_gradients(self._state.clip_norm)
        self._optimizer.step()
        if self._scheduler is not None:
            self._scheduler.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._state.step += 1
        self._state.loss = loss
        self._group.publish_state(self.step)
        self._reporter.on_step(self.step)

    def _settle(self, decision: StepAgreement, vote: StepVote) -> None:
        if self.total is not None and self.step >= self.total:
            self._saving.save_or_raise(self.step)
            return
        if decision.stops and self._stop_all_ranks(decision):
            self._saving.save_on_notice(self.step)
            self._end()
        if decision.save:
            self._saving.save(self.step)
            self._save_soon = False
        if decision.stops and vote.stop:
            self._end()
        if decision.stops or decision.part:
            self._save_soon = decision.stops > 0
            self._regroup("a member leaves" if decision.stops else "a member joins", failed=False)

    def _stop_all_ranks(self, decision: StepAgreement) -> bool:
        """A fixed group stops with its first rank; an elastic one when all have a notice: otherwise
        the others continue with the state that they hold.
        """
        return self._group.generation is None or decision.stops >= self._group.size

    def _end(self) -> None:
        self._reporter.ended(TrainerState.STOPPED, self.step)
        self._group.leave()
        raise TrainingExit(0 if STATUS_FILE in os.environ else SIGTERM_EXIT)

    def _begin(self, total: int) -> None:
        self.total = total
        if self._total_units is not None:
            self._reporter.units_per_step = self._total_units / total
        self._saving.report_restored(self.step, self.guarantee)

    def _finish(self) -> None:
        while not self._saving.has_saved(self.step):
            try:
                self._saving.save_or_raise(self.step)
            except PeerLostError as error:
                self._regroup(str(error), failed=True)
        self._reporter.ended(TrainerState.FINISHED, self.step)
        if self._group.generation is not None:
            self._group.leave()

    def _regroup(self, why: str, *, failed: bool) -> None:
        assert isinstance(self._group, ElasticGroup), why
        began = time.monotonic()
        if failed:
            self._work.salvage()
        why = self._form(self._group, why, failed=failed)
        pause_s = time.monotonic() - began
        size, generation = self._group.size, self._group.generation
        self.regrouped.append(RegroupEvent(generation or 0, size, self.step, pause_s, why))
        self._reporter.guarantees(self.guarantee)
        self._saving.log_error(
            f"gang {generation}: {size} members at step {self.step}, after {pause_s:.3f} s ({why})"
        )

    def _form(self, group: ElasticGroup, why: str | None, *, failed: bool) -> str:
        """Repeat until a gang has formed and all its members have one state; return why it had to.

        A process that was suspended may find in what it restores that a later gang has saved since,
        before it learns that its own is over.
        """
        self._saving.copied()
        while True:
            try:
                formed = group.form(failed=failed)
                self._weights.forget()
                self._on_formed(formed.generation)
                self._state.compare(formed.conditions)
                if formed.source is None:
                    self._restore()
                elif not formed.aligned:
                    self._state.align(formed.source)
                group.publish_state(self.step)
                self._reporter.on_rollback(self.step)
            except PeerLostError as error:
                why, failed = str(error), True
            except SupersededError as error:
                why, failed = error.message, True
            else:
                return why or "the first"

    def _restore(self) -> None:
        """Restore the newest valid checkpoint; if there is none, all begin with rank 0's state."""
        with self._group.agreeing():
            restored = self._saving.restore()
            if restored is not None:
                source = f"checkpoint {restored.name} in {restored.describe_source}"
                self._state.load(restored.state, source)
            else:
                self._state.align(0)
            self._saving.claim()

    def _roll_back(self, wrong: str) -> None:
        assert self._watch is not None
        bad, limit = self.step, self._watch.rule.limit
        skipped, done = self._state.skipped, self._state.rollbacks
        self._saving.copied()
        with self._group.agreeing():
            restored = self._saving.restore() if done < limit else None
            if restored is not None:
                self._state.load(restored.state, f"checkpoint {restored.name}")
        if restored is None:
            raise CostoptError(
                f"step {bad}: {wrong}, after {done} rollbacks of at most {limit}",
                hint="check the data and the learning rate; without a checkpoint no rollback "
                "is possible",
            )
        self._state.skipped = skipped + bad - self.step + 1
        self._state.rollbacks = done + 1
        self._optimizer.zero_grad(set_to_none=True)
        self._group.publish_state(self.step)
        self._reporter.on_rollback(self.step)
        self._saving.log_error(
            f"step {bad}: {wrong}: rolled back to step {self.step}, skipping data"
        )


class StopRequest:
    """Polled once a step. Installs a SIGTERM handler if it is created in the main thread."""

    def __init__(self, notice_file: Path | None) -> None:
        self._notice_file = notice_file
        self._signalled = False
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def is_requested(self) -> bool:
        """Return True from the first notice on."""
        return self._signalled or (self._notice_file is not None and self._notice_file.exists())

    def notice(self) -> StopNotice | None:
        """Return the agent's notice; None if there is no notice file."""
        return None if self._notice_file is None else StopNotice.read(self._notice_file)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._signalled = True


MIN_HISTORY = 10
WINDOW = 50


@dataclass(frozen=True, slots=True)
class RollbackPolicy:
    """Return to the last checkpoint if the loss goes wrong, and skip the data in between.

    Wrong is NaN or infinite; with ``spike``, also more than that many times the median of the last
    50 steps (after 10). At most ``limit`` times in the life of the job. Skipping the batches
    between the checkpoint and the spike follows Chowdhery et al., PaLM (2022), section 5.1.
    """

    limit: int = 3
    spike: float | None = None

    def __post_init__(self) -> None:
        if self.limit < 1 or (self.spike is not None and self.spike <= 1.0):
            raise ValueError(f"{self}: limit must be at least 1, spike above 1")


class LossMonitor:
    """Checks each step's mean loss before the step is made."""

    def __init__(self, rule: RollbackPolicy) -> None:
        self.rule = rule
        self._past: deque[float] = deque(maxlen=WINDOW)

    def wrong(self, loss: float | None) -> str | None:
        """Return what is wrong with the loss, or None; a step without an observed loss is fine."""
        if loss is None:
            return None
        if not math.isfinite(loss):
            return f"the loss is {loss}"
        spike = self.rule.spike
        if spike is not None and len(self._past) >= MIN_HISTORY:
            usual = median(self._past)
            if loss > spike * usual:
                return f"the loss is {loss:g}, {spike:g} times the usual {usual:g} or more"
        self._past.append(loss)
        return None
