"""The process on a training node: watches for notices, runs the trainer, heartbeats (no torch)."""
