"""Whether this process has been asked to save and stop: by its agent's file, or by SIGTERM."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType

from costopt.protocol.trainer_files import StopNotice


class StopRequest:
    """Looked at once a step. Installs a SIGTERM handler where it is made in the main thread."""

    def __init__(self, notice_file: Path | None) -> None:
        self._notice_file = notice_file
        self._signalled = False
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def is_requested(self) -> bool:
        """True from the first notice on."""
        return self._signalled or (self._notice_file is not None and self._notice_file.exists())

    def notice(self) -> StopNotice | None:
        """What the agent knows of it; None where there is no notice by file."""
        return None if self._notice_file is None else StopNotice.read(self._notice_file)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._signalled = True
