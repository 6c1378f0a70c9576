"""Memory that two processes share and that is gone with the last of them.

An anonymous file of memory (memfd_create) has no name, so a crash leaves nothing behind in
/dev/shm, and containers that allow little of that do not limit it.
"""

from __future__ import annotations

import mmap
import os
import weakref

from costopt.domain.errors import CheckpointError

PAGE_BYTES = 2 << 20


class SharedMemory:
    """``size_bytes`` of memory behind a descriptor that can be handed to another process."""

    def __init__(self, descriptor: int, size_bytes: int, *, writable: bool) -> None:
        self.descriptor = descriptor
        self.size_bytes = size_bytes
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self.map = mmap.mmap(descriptor, size_bytes, mmap.MAP_SHARED, protection)
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def create(cls, size_bytes: int) -> SharedMemory:
        """Reserve the memory now, so that its lack is an error here and no crash while copying.

        Raises CheckpointError.
        """
        rounded = max(1, -(-size_bytes // PAGE_BYTES)) * PAGE_BYTES
        descriptor = -1
        try:
            descriptor = os.memfd_create("costopt-checkpoint", os.MFD_CLOEXEC)
            os.posix_fallocate(descriptor, 0, rounded)
            return cls(descriptor, rounded, writable=True)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            raise CheckpointError(
                f"no memory for a snapshot of {size_bytes / 2**20:.0f} MiB: {error.strerror}",
                hint="checkpoints are copied in memory first: leave room for one copy of the state",
                code="no_memory",
            ) from error
