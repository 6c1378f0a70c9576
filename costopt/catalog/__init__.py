"""Instance types, regions and a dated snapshot of prices, shipped with their sources."""

from costopt.catalog.bucket import InterruptionBucket
from costopt.catalog.catalog import Catalog, load_catalog

__all__ = ["Catalog", "InterruptionBucket", "load_catalog"]
