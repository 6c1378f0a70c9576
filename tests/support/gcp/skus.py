"""The SKUs of Cloud Billing, two on a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.gcp.responses import Call, Reply

PAGE = 2


class Skus:
    """Prices of parts of machines, as the Cloud Billing Catalog API shows them."""

    def __init__(self) -> None:
        self.all: list[Mapping[str, Any]] = []

    def reset(self) -> None:
        """None is listed."""
        self.all.clear()

    def add(
        self, description: str, usage: str, usd: float, *regions: str, currency: str = "USD"
    ) -> None:
        """A part of machines of these regions: "G2 Instance Core running in Iowa", "OnDemand"."""
        price = {"currencyCode": currency, "units": str(int(usd)), "nanos": round(usd % 1 * 1e9)}
        rate = {"startUsageAmount": 0, "unitPrice": price}
        self.all.append(
            {
                "name": f"services/6F81-5844-456A/skus/{len(self.all)}",
                "description": description,
                "category": {"resourceFamily": "Compute", "usageType": usage},
                "serviceRegions": list(regions),
                "pricingInfo": [{"pricingExpression": {"usageUnit": "h", "tieredRates": [rate]}}],
            }
        )

    def g2(self, *regions: str) -> None:
        """Those of machines with L4s: a g2-standard-4 costs 1.72 on demand and 0.43 on spot."""
        for usage, words, attached, share in (
            ("OnDemand", "", "", 1.0),
            ("Preemptible", "Spot Preemptible ", " attached to Spot Preemptible VMs", 0.25),
        ):
            self.add(f"{words}G2 Instance Core running in Iowa", usage, 0.02 * share, *regions)
            self.add(f"{words}G2 Instance Ram running in Iowa", usage, 0.005 * share, *regions)
            self.add(f"Nvidia L4 GPU{attached} running in Iowa", usage, 1.56 * share, *regions)

    def g2_on_flex_start(self, *regions: str) -> None:
        """A g2-standard-4 costs 0.86, named as A3's SKUs are: without "Instance"."""
        words = "DWS Defined Duration"
        self.add(f"{words} G2 Core running in Iowa", "OnDemand", 0.01, *regions)
        self.add(f"{words} G2 Ram running in Iowa", "OnDemand", 0.0025, *regions)
        gpu = f"Nvidia L4 GPU attached to {words} VMs running in Iowa"
        self.add(gpu, "OnDemand", 0.78, *regions)

    def listed(self, call: Call) -> Reply:
        """services.skus.list."""
        first = int(call.query.get("pageToken") or 0)
        more = str(first + PAGE) if len(self.all) > first + PAGE else ""
        return Reply({"skus": self.all[first : first + PAGE], "nextPageToken": more})
