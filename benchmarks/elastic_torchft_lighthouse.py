"""A lighthouse of torchft, in a process of its own since it logs every request. Prints where."""

from __future__ import annotations

import sys

from torchft.coordination import LighthouseServer

HEARTBEAT_TIMEOUT_MS = 1000
JOIN_TIMEOUT_MS = 100


def main() -> None:
    """Serve until the standard input ends."""
    lighthouse = LighthouseServer(
        bind="127.0.0.1:0",
        min_replicas=1,
        join_timeout_ms=JOIN_TIMEOUT_MS,
        heartbeat_timeout_ms=HEARTBEAT_TIMEOUT_MS,
    )
    sys.stdout.write(f"{lighthouse.address()}\n")
    sys.stdout.flush()
    sys.stdin.read()
    lighthouse.shutdown()


if __name__ == "__main__":
    main()
