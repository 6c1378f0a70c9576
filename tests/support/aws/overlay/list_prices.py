"""On-demand prices in the Pricing API and in the public price file; the Spot Advisor's page."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.support.aws.overlay.call import Answer, Call, Forward, Reply

ADVISOR = "/public/spot-advisor-data.json"
PRICE_FILES = "/public/AmazonEC2/current"
HEADER = (
    "SKU", "OfferTermCode", "RateCode", "TermType", "PriceDescription", "EffectiveDate",
    "StartingRange", "EndingRange", "Unit", "PricePerUnit", "Currency", "Location",
    "Instance Type", "vCPU", "Tenancy", "Operating System", "License Model", "operation",
    "CapacityStatus", "Pre Installed S/W", "MarketOption", "Region Code",
)  # fmt: skip
RANGES = (
    {"index": 0, "label": "<5%", "dots": 0, "max": 5},
    {"index": 1, "label": "5-10%", "dots": 1, "max": 11},
    {"index": 2, "label": "10-15%", "dots": 2, "max": 16},
    {"index": 3, "label": "15-20%", "dots": 3, "max": 22},
    {"index": 4, "label": ">20%", "dots": 4, "max": 100},
)


class ListPrices:
    """Nothing is listed until a test says so, and each source is asked apart from the other."""

    def __init__(self) -> None:
        self.in_api: dict[tuple[str, str], float] = {}
        self.in_file: dict[tuple[str, str], float] = {}
        self.buckets: dict[tuple[str, str], int] = {}
        self.page = 100
        self.cut_files_at: int | None = None
        self.advisor: bytes | None = None
        self.published = "2026-11-14T10:00:00Z"

    def answers(self) -> Mapping[tuple[str, str], Answer]:
        """GetProducts, the price files and the Spot Advisor's JSON."""
        return {
            ("pricing", "GetProducts"): self.get_products,
            ("", PRICE_FILES): self.price_file,
            ("", ADVISOR): self.spot_advisor,
        }

    def reset(self) -> None:
        """Nothing is listed."""
        self.__init__()  # type: ignore[misc]

    def list(self, region: str, instance_type: str, usd: float, bucket: int | None = None) -> None:
        """An on-demand price, in both sources, and the Spot Advisor's bucket."""
        self.in_api[region, instance_type] = self.in_file[region, instance_type] = usd
        if bucket is not None:
            self.buckets[region, instance_type] = bucket

    def get_products(self, call: Call, forward: Forward) -> Reply:
        """Products that meet the filters on region and type, as strings of JSON, in pages."""
        wanted = {each["Field"]: each["Value"] for each in call.content["Filters"]}
        found = [
            _product(region, name, usd)
            for (region, name), usd in self.in_api.items()
            if wanted.get("instanceType", name) == name
            and wanted.get("regionCode", region) == region
        ]
        first = int(call.content.get("NextToken") or 0)
        reply: dict[str, object] = {
            "FormatVersion": "aws_v1",
            "PriceList": [json.dumps(each) for each in found[first : first + self.page]],
        }
        if first + self.page < len(found):
            reply["NextToken"] = str(first + self.page)
        return Reply.json(reply)

    def price_file(self, call: Call, forward: Forward) -> Reply:
        """index.csv of the region in the path, with rows that are not plain Linux nodes, too."""
        region = call.path.removeprefix(PRICE_FILES).strip("/").partition("/")[0]
        rows = [
            *(_row(r, n, usd) for (r, n), usd in self.in_file.items() if r == region),
            *(
                _row(r, n, usd * 2, **{"Operating System": "Windows"})
                for (r, n), usd in self.in_file.items()
                if r == region
            ),
            *(
                _row(r, n, usd * 3, CapacityStatus="UnusedCapacityReservation")
                for (r, n), usd in self.in_file.items()
                if r == region
            ),
            _row(region, "m5.large", 0.01, TermType="Reserved"),
            _row(region, "m5.large", 0.0, CapacityStatus="UnusedCapacityReservation"),
        ]
        preface = (
            ("FormatVersion", "v1.0"),
            ("Disclaimer", "This pricing list is for informational purposes only, as they say"),
            ("Publication Date", self.published),
            ("Version", "20261114100000"),
            ("OfferCode", "AmazonEC2"),
        )
        lines = (_quoted(row) for row in (*preface, HEADER, *rows))
        body = "".join(lines).encode()
        headers = {"Content-Type": "text/csv", "Content-Length": str(len(body))}
        if self.cut_files_at is not None:
            body = body[: self.cut_files_at]
        return Reply(200, body, headers)

    def spot_advisor(self, call: Call, forward: Forward) -> Reply:
        """The buckets as the advisor's page gives them."""
        if self.advisor is not None:
            return Reply(200, self.advisor, {"Content-Type": "application/json"})
        regions: dict[str, dict[str, dict[str, dict[str, int]]]] = {}
        for (region, name), bucket in self.buckets.items():
            systems = regions.setdefault(region, {"Linux": {}, "Windows": {}})
            systems["Linux"][name] = {"s": 60, "r": bucket}
            systems["Windows"][name] = {"s": 40, "r": 4}
        content = {"global_rate": "<10%", "ranges": RANGES, "spot_advisor": regions}
        return Reply.json(content)


def _product(region: str, name: str, usd: float) -> dict[str, object]:
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{usd:.10f}"}, "description": "per hour"}
    return {
        "product": {
            "productFamily": "Compute Instance",
            "attributes": {"instanceType": name, "regionCode": region, "tenancy": "Shared"},
            "sku": "SKU",
        },
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {"SKU.JRTCKXETXF": {"priceDimensions": {"SKU.6YS6": dimension}}}},
        "publicationDate": "2026-11-14T10:00:00Z",
    }


def _row(region: str, name: str, usd: float, **changed: str) -> tuple[str, ...]:
    cells = {
        "SKU": "SKU", "TermType": "OnDemand", "Unit": "Hrs", "PricePerUnit": f"{usd:.10f}",
        "Currency": "USD", "Location": 'somewhere, "there"', "Instance Type": name,
        "Tenancy": "Shared", "Operating System": "Linux", "operation": "RunInstances",
        "License Model": "No License required", "CapacityStatus": "Used",
        "Pre Installed S/W": "NA", "MarketOption": "OnDemand", "Region Code": region,
    }  # fmt: skip
    cells |= changed
    return tuple(cells.get(column, "") for column in HEADER)


def _quoted(row: tuple[str, ...]) -> str:
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\n"
