"""A training loop that resumes where it was, saves when it should and stops when it must."""

from __future__ import annotations

import os
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
from costopt.train.saving import Saving
from costopt.train.state import Stateful, random_state, restore_random_state

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
        self._stop = stop
        self._reporter = reporter
        self._clip_norm = clip_norm
        self._total_units = total_units
        self._saving = Saving(checkpointer, cadence, reporter, group, self._capture)
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
        decision = self._reducer.reduce(stop=self._stop.is_made(), save=self._saving.is_due())
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
            self._saving.save_for_certain(self.step)
        elif decision.stop:
            self._saving.save_for_certain(self.step)
            self._reporter.ended(TrainerState.STOPPED, self.step)
            self._group.leave()
            raise Stopped(0 if STATUS_FILE in os.environ else SIGTERM_EXIT)
        elif decision.save:
            self._saving.save(self.step)

    def _begin(self, total: int) -> None:
        self.total = total
        if self._total_units is not None:
            self._reporter.units_per_step = self._total_units / total
        self._saving.tell_restored(self.step, self.guarantee)
        if self._random is not None:
            restore_random_state(self._random)
            self._random = None

    def _finish(self) -> None:
        if not self._saving.has_saved(self.step):
            self._saving.save_for_certain(self.step)
        self._reporter.ended(TrainerState.FINISHED, self.step)

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
        restored = self._saving.restore()
        if restored is None:
            self._group.share(self._model)
        else:
            self._take_up(restored)

    def _take_up(self, restored: Restored) -> None:
        state = restored.state
        for name, part in self._parts.items():
            if name not in state["parts"]:
                raise CheckpointError(
                    f"checkpoint {restored.name} holds no state of the {name}",
                    hint="attach what was attached when it was saved, or use another URI",
                )
            part.load_state_dict(state["parts"][name])
        self.step = state["step"]
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
