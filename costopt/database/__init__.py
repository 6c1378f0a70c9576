"""Databases by their place: a SQLite file or a PostgreSQL URL, what they refuse, their steps."""
