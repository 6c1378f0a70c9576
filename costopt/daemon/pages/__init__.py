"""The daemon's pages: looked at in a browser, made on the server, changing nothing."""
