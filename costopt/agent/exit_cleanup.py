"""Clean up after an agent that is killed: exit_cleanup.py FOLDER SHELL_COMMAND.

Standard input is a pipe that only the agent holds: it ends with the agent, however that ends. Then
the folder, which holds secrets, is removed, and the command removes containers, which do not die
with their client. Run by path, in a session of its own.
"""

import shutil
import subprocess
import sys


def main(folder: str, command: str) -> None:
    """Wait for the agent's end, and clean up."""
    sys.stdin.read()
    shutil.rmtree(folder, ignore_errors=True)
    if command:
        subprocess.call(["/bin/sh", "-c", command], stdout=subprocess.DEVNULL)  # noqa: S603


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
