"""Sharded checkpoints: each rank writes its own boxes; the store is where the ranks meet."""
