"""Backtests: the engine on a recorded market and a virtual clock, and the hindsight optimum."""
