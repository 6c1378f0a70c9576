"""The daemon: runs the jobs of one account, each under its own policy, for months."""
