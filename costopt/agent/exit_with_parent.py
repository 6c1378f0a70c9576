"""Run a command that cannot outlive the process that started it: exit_with_parent.py PARENT_PID CMD
….

A node is killed without warning, and what it ran must die with it: torchrun puts its workers in
sessions of their own, out of reach of a signal to the node's process group. On Linux the kernel
sends SIGKILL to a process whose parent dies if the process has requested it (prctl(2),
PR_SET_PDEATHSIG), and the request survives execve. On other systems the command runs unprotected.
Run by path, so that it needs only the standard library.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Tie this process to its parent, then execute the command. PARENT_PID 0: any but init."""
    parent_pid, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        adopted = os.getppid() == 1 if parent_pid == 0 else os.getppid() != parent_pid
        if adopted:
            raise SystemExit("the parent died before its child was tied to it")
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        raise SystemExit(f"cannot run {command[0]}: {error.strerror}") from None


if __name__ == "__main__":
    main(sys.argv[1:])
