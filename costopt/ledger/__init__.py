"""Append-only events, and the folds that turn them into dollars, energy and progress."""
