"""Prices, availability and hazards: recorded, generated, imported and learned."""
