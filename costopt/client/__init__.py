"""The client of a daemon, over its local socket or over HTTP; standard library only."""
