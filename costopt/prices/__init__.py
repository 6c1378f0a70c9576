"""Public price lists that need no credentials: fetched, checked and kept in the user's cache."""

from costopt.prices.update import UpdateReport, UpdateSettings, update_prices

__all__ = ["UpdateReport", "UpdateSettings", "update_prices"]
