"""A training loop that resumes where it was, saves when it should and stops when it must."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from costopt.agent.status import TrainerState
from costopt.agent.trainer_env import STATUS_FILE
from costopt.domain.errors import CheckpointError, CostoptError
from costopt.train.cadence import Cadence
from costopt.train.checkpointer import Checkpointer, Restored
from costopt.train.group import Decision, Group, Reducer
from costopt.train.notice import StopRequest
from costopt.train.reporter import Reporter
from costopt.train.state import Stateful, random_state, restore_random_state

FAILED_SAVES_ALLOWED = 2
SIGTERM_EXIT = 143


class Stopped(SystemExit):
    """Raised by ``apply`` once the state is saved on a notice: the process ends here.

    The exit code is 0 under the agent, which knows why, else 143 as for any process that SIGTERM
    ended.
    """


class TrainingLoop:
    """What ``attach`` returns: ``steps`` yields the steps that remain, ``apply`` ends each."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        scheduler: Stateful | None,
        data: Stateful | None,
        *,
        group: Group,
        checkpointer: Checkpointer | None,
        cadence: Cadence,
        stop: StopRequest,
        reporter: Reporter,
        clip_norm: float | None = None,
        total_units: float | None = None,
    ) -> None:
        self.step = 0
        self.guarantee = "exact"
        self.total: int | None = None
        self._parts: dict[str, Any] = {"model": model, "optimizer": optimizer}
        if scheduler is not None:
            self._parts["scheduler"] = scheduler
        self._model = model
        self._optimizer = optimizer
        self._scheduler: Any = scheduler
        self._data = data
        self._group = group
        self._reducer = Reducer(group, model)
        self._checkpointer = checkpointer
        self._cadence = cadence
        self._stop = stop
        self._reporter = reporter
        self._clip_norm = clip_norm
        self._total_units = total_units
        self._saved_step: int | None = None
        self._failed_saves = 0
        self._restored: Restored | None = None
        self._random: dict[str, Any] | None = None
        self._restore()

    def steps(self, total: int) -> Iterator[int]:
        """Yield the steps from where the job stands up to ``total`` (exclusive).

        The generators' states are restored here, as late as possible: what the script drew from
        them while it was set up does not count. After the last step the state is saved and the
        loop ends; code behind the loop runs only then. Raises CheckpointError.
        """
        self._begin(total)
        while self.step < total:
            step = self.step
            yield step
            if self.step == step:
                raise CostoptError(
                    f"step {step} ended without job.apply()",
                    hint="call job.apply() once in each turn of the loop, after backward()",
                )
        self._finish()

    def apply(self) -> None:
        """Average gradients over the ranks, clip, step, and save or stop where that is due.

        Raises Stopped after a save on notice; CheckpointError after three failed saves.
        """
        decision = self._reducer.reduce(stop=self._stop.is_made(), save=self._cadence.is_due())
        if self._clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._clip_norm)
        self._optimizer.step()
        if self._scheduler is not None:
            self._scheduler.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self._reporter.stepped(self.step)
        self._settle(decision)

    def _settle(self, decision: Decision) -> None:
        if self.total is not None and self.step >= self.total:
            self._save_for_certain()
        elif decision.stop:
            self._save_for_certain()
            self._reporter.ended(TrainerState.STOPPED, self.step)
            self._group.leave()
            raise Stopped(0 if STATUS_FILE in os.environ else SIGTERM_EXIT)
        elif decision.save:
            self._save()

    def _begin(self, total: int) -> None:
        self.total = total
        if self._total_units is not None:
            self._reporter.units_per_step = self._total_units / total
        restored = None
        if self._restored is not None and self._checkpointer is not None:
            restored = self._checkpointer.describe(self._restored)
        refused = () if self._checkpointer is None else self._checkpointer.refused
        for refusal in refused:
            self._complain(f"checkpoint {refusal.name} refused: {refusal.message}")
        self._restored = None
        self._reporter.resumed(self.step, restored, refused, self.guarantee)
        if self._random is not None:
            restore_random_state(self._random)
            self._random = None

    def _finish(self) -> None:
        if self._saved_step != self.step:
            self._save_for_certain()
        self._reporter.ended(TrainerState.FINISHED, self.step)

    def _save(self) -> bool:
        """Save once; a failure is told and counted, and the third in a row is raised."""
        if self._checkpointer is None:
            return True
        began = time.monotonic()
        state = self._capture()
        if self._group.rank != 0:
            self._saved_step = self.step
            return True
        try:
            saved = self._checkpointer.save(self.step, state, world_size=self._group.size)
        except CheckpointError as error:
            self._failed_saves += 1
            self._complain(str(error))
            self._reporter.failed(error.message)
            self._cadence.failed()
            if self._failed_saves > FAILED_SAVES_ALLOWED:
                raise
            return False
        self._failed_saves = 0
        self._saved_step = self.step
        self._cadence.saved(time.monotonic() - began)
        self._reporter.saved(self.step, saved)
        return True

    def _save_for_certain(self) -> None:
        """Save, trying as often as is allowed; every rank waits until the state is safe."""
        while not self._group.broadcast(self._save()):
            continue

    def _capture(self) -> dict[str, Any]:
        """The whole state on rank 0. Randomness and data position are each rank's own."""
        own: dict[str, Any] = {"random": random_state()}
        if self._data is not None:
            own["data"] = self._data.state_dict()
        ranks = self._group.gather(own)
        if self._group.rank != 0:
            return {}
        return {
            "step": self.step,
            "parts": {name: part.state_dict() for name, part in self._parts.items()},
            "ranks": ranks,
        }

    def _restore(self) -> None:
        """Rank 0 chooses the newest valid checkpoint; the others read the same one."""
        if self._checkpointer is None:
            self._group.share(self._model)
            return
        if self._group.rank == 0:
            self._restored = self._checkpointer.restore()
        name = self._group.broadcast(None if self._restored is None else self._restored.name)
        if name is None:
            self._group.share(self._model)
            return
        if self._group.rank != 0:
            self._restored = self._checkpointer.load(name)
        assert self._restored is not None
        self._take_up(self._restored)

    def _take_up(self, restored: Restored) -> None:
        state = restored.state
        for name, part in self._parts.items():
            if name not in state["parts"]:
                raise CheckpointError(
                    f"checkpoint {restored.name} holds no state of the {name}",
                    hint="attach what was attached when it was saved, or use another URI",
                )
            part.load_state_dict(state["parts"][name])
        self.step = self._saved_step = state["step"]
        ranks = state["ranks"]
        if len(ranks) == self._group.size:
            own = ranks[self._group.rank]
            self._random = own["random"]
        else:
            own = ranks[0]
            self.guarantee = f"close: {len(ranks)} processes became {self._group.size}"
            torch.manual_seed(hash((torch.initial_seed(), self.step, self._group.rank)))
        if self._data is not None and "data" in own:
            self._data.load_state_dict(own["data"])

    def _complain(self, message: str) -> None:
        print(f"costopt: {message}", file=sys.stderr, flush=True)  # noqa: T201
