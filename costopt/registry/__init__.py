"""What the daemon knows besides the ledger: jobs handed in, proposals, its mode, tokens."""
