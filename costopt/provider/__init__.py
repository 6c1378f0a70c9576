"""What providers share: validated options, launches, caches, timeouts and isolation of faults."""
