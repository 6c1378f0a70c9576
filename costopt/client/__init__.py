"""Talks to a daemon over its local socket or over HTTP; standard library only."""
