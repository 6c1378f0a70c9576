"""Where runs are read: the ledger of a folder, or a daemon. Both answer alike."""
