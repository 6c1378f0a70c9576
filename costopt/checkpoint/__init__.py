"""Checkpoints as bytes in a store: names, manifests, commits and history. No torch."""
