"""Instance types, regions and a dated snapshot of prices, shipped with their sources."""

from costopt.catalog.catalog import Catalog, load_catalog

__all__ = ["Catalog", "load_catalog"]
