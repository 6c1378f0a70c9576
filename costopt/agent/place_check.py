"""Reads whose checkpoints lie where a gang is about to save."""

from __future__ import annotations

import threading

from costopt.checkpoint.identity import ANOTHER_JOB
from costopt.checkpoint.repository import CheckpointRepository
from costopt.domain.errors import CheckpointError, CostoptError
from costopt.protocol.messages import Gang

READ_TIMEOUT_S = 5.0


def another_job_reason(gang: Gang, timeout_s: float = READ_TIMEOUT_S) -> str | None:
    """Return why the gang's job may not save in its checkpoint place, None if it may.

    A store that does not answer in time is left to the trainer, as this node's heartbeats wait.
    """
    uri, identity, found = gang.checkpoint_uri, gang.identity, list[str]()
    if uri is None or identity is None:
        return None

    def read() -> None:
        try:
            CheckpointRepository.open(uri, identity).candidates()
        except CheckpointError as error:
            if error.code == ANOTHER_JOB:
                found.append(error.message)
        except CostoptError:
            return

    reader = threading.Thread(target=read, name="place", daemon=True)
    reader.start()
    reader.join(timeout_s)
    return found[0] if found else None
