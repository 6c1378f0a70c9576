"""Finish training jobs by their deadline on spot capacity, at the lowest dollars and kWh."""

__version__ = "0.1.0"
