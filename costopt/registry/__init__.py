"""The daemon's state besides the ledger: submissions, proposals, its mode, halts and tokens."""
