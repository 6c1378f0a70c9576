"""Forecasts: the policy that will run, simulated over sampled futures of the market."""
