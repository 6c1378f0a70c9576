"""The daemon's pages: read-only HTML rendered on the server."""
