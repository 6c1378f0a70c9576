"""The strategy `priced`: the jobs of a cluster together, by the price of a GPU-hour."""
