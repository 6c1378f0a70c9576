"""Restores power limits when the agent that set them dies: restore_power_limits.py REMEMBERED TOOL.

An agent that is killed cannot remove its limits, and the driver keeps them for the next user of the
node. This process outlives the agent's process group and waits until the other end of its standard
input is closed, which the kernel does however the agent ended. Then it restores what the file
REMEMBERED says, unless the agent did so itself and removed the file. Run by path, so that it needs
only the standard library.
"""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

COMMAND_TIMEOUT_S = 30.0


def main(arguments: list[str]) -> None:
    """Wait, then restore the limits."""
    remembered, tool = Path(arguments[0]), arguments[1]
    while sys.stdin.buffer.read(1):
        continue
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        before = json.loads(remembered.read_bytes())
        for gpu, watts in before.items():
            subprocess.run(  # noqa: S603
                [tool, "-i", gpu, "-pl", f"{watts:.0f}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                check=True,
                timeout=COMMAND_TIMEOUT_S,
            )
        remembered.unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1:])
