"""The daemon: jobs come and go, each under its own policy, in one account, for months."""
