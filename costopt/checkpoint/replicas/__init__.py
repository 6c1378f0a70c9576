"""Replicas of the newest state nearer than the object store: memory, disk, a peer's memory."""
