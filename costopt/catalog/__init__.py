"""Instance types, regions and a dated snapshot of prices, shipped with their sources."""

from costopt.catalog.catalog import Catalog, load_catalog
from costopt.catalog.traits import ProviderTraits, find_traits

__all__ = ["Catalog", "ProviderTraits", "find_traits", "load_catalog"]
