"""What a leading daemon does at each tick, and beside it."""
