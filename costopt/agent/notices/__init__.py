"""How a node learns that its provider is about to take it: one source per kind of cloud."""
