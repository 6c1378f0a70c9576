"""Rounds: which jobs of a shared cluster run now, and on how many GPUs. Arrays in, sizes out."""
