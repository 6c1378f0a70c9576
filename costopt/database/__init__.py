"""Databases by their place, a SQLite file or a PostgreSQL URL: errors, migrations and backups."""
