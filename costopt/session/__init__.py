"""A live run put together from its parts; the command line and the daemon both begin here."""
