"""How each noun is laid out: its columns, for every output."""
