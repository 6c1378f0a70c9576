"""Copies of the newest state nearer than the object store: memory, local disk, a peer's memory."""
