"""Checkpoints, exact resume and stopping on notice for a PyTorch training loop.

    job = costopt.train.attach(model, optimizer, scheduler)
    for step in job.steps(1200):
        loss = loss_fn(model, batch(step))
        loss.backward()
        job.apply()

The same script runs under the agent, under torchrun and as plain Python. A loop that steps its
own way can use ``Checkpointer`` alone.
"""

from costopt.domain.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        "costopt.train needs PyTorch, which is not installed", hint="pip install 'costopt[train]'"
    ) from error

from costopt.train.attach import attach
from costopt.train.checkpointer import Checkpointer, Restored
from costopt.train.loop import Stopped, TrainingLoop

__all__ = ["Checkpointer", "Restored", "Stopped", "TrainingLoop", "attach"]
