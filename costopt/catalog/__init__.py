"""Instance types, regions and a dated snapshot of prices, shipped with their sources."""

from costopt.catalog.catalog import Catalog, load_catalog
from costopt.domain.bucket import InterruptionBucket

__all__ = ["Catalog", "InterruptionBucket", "load_catalog"]
