"""Spot prices and placement scores, paged as EC2 pages them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from xml.sax.saxutils import escape

from tests.support.aws.overlay.call import Answer, Call, Forward, Reply
from tests.support.aws.overlay.refusal import refusal

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Price:
    """One change: ``usd`` is the text that is sent."""

    zone: str
    instance_type: str
    at: datetime
    usd: str
    product: str


class SpotMarket:
    """Nothing costs anything until a test says so. ``page`` is how many entries a page holds."""

    def __init__(self) -> None:
        self.page = 1000
        self._prices: list[Price] = []
        self._scores: dict[tuple[str, str], int] = {}
        self._questions: set[tuple[str, ...]] = set()
        self.questions_a_day = 100

    def answers(self) -> Mapping[tuple[str, str], Answer]:
        """DescribeSpotPriceHistory and GetSpotPlacementScores."""
        return {
            ("ec2", "DescribeSpotPriceHistory"): self.describe_spot_price_history,
            ("ec2", "GetSpotPlacementScores"): self.get_spot_placement_scores,
        }

    def reset(self) -> None:
        """No prices and no scores."""
        self.__init__()  # type: ignore[misc]

    def price(
        self,
        zone: str,
        instance_type: str,
        usd: float | str,
        at: datetime = LONG_AGO,
        product: str = "Linux/UNIX",
    ) -> None:
        """From ``at`` on the zone (its name: "us-east-1a") has this price."""
        self._prices.append(Price(zone, instance_type, at, str(usd), product))

    def score(self, region: str, zone_id: str, score: int) -> None:
        """The placement score of a zone for any three types or more."""
        self._scores[region, zone_id] = score

    def describe_spot_price_history(self, call: Call, forward: Forward) -> Reply:
        """Newest first; the change in force at StartTime comes too."""
        types, products = call.numbered("InstanceType"), call.numbered("ProductDescription")
        since = _instant(call.params.get("StartTime"), LONG_AGO)
        until = _instant(call.params.get("EndTime"), datetime.max.replace(tzinfo=UTC))
        asked = [
            price
            for price in self._prices
            if price.zone.startswith(call.region)
            and (not types or price.instance_type in types)
            and (not products or price.product in products)
            and price.at <= until
        ]
        found = sorted(_from(asked, since), key=lambda price: price.at, reverse=True)
        return self._paged(call, "DescribeSpotPriceHistory", "spotPriceHistorySet", [
            f"<item><instanceType>{price.instance_type}</instanceType>"
            f"<productDescription>{price.product}</productDescription>"
            f"<spotPrice>{escape(price.usd)}</spotPrice>"
            f"<timestamp>{price.at:%Y-%m-%dT%H:%M:%S}.000Z</timestamp>"
            f"<availabilityZone>{price.zone}</availabilityZone></item>"
            for price in found
        ])  # fmt: skip

    def get_spot_placement_scores(self, call: Call, forward: Forward) -> Reply:
        """1 for fewer than three types; refused once a day's questions are used up."""
        types, regions = call.numbered("InstanceType"), call.numbered("RegionName")
        question = (*sorted(types), *regions, call.params.get("TargetCapacity", ""))
        if question not in self._questions and len(self._questions) >= self.questions_a_day:
            message = "You have reached the limit of new configurations for the last 24 hours"
            return refusal(call, "MaxConfigLimitExceeded", message)
        self._questions.add(question)
        scores = {
            (region, zone_id): score if len(types) >= 3 else 1
            for (region, zone_id), score in self._scores.items()
            if region in regions
        }
        return self._paged(call, "GetSpotPlacementScores", "spotPlacementScoreSet", [
            f"<item><region>{region}</region><availabilityZoneId>{zone_id}</availabilityZoneId>"
            f"<score>{score}</score></item>"
            for (region, zone_id), score in scores.items()
        ])  # fmt: skip

    def _paged(self, call: Call, action: str, field: str, items: list[str]) -> Reply:
        first = int(call.params.get("NextToken") or 0)
        size = min(self.page, int(call.params.get("MaxResults") or self.page))
        token = str(first + size) if first + size < len(items) else ""
        return Reply.xml(
            f'<{action}Response xmlns="{NAMESPACE}"><requestId>0</requestId>'
            f"<{field}>{''.join(items[first : first + size])}</{field}>"
            f"<nextToken>{token}</nextToken></{action}Response>"
        )


def _from(prices: Iterable[Price], since: datetime) -> list[Price]:
    """Those since then, and of each pool the last before."""
    before: dict[tuple[str, str, str], Price] = {}
    later: list[Price] = []
    for price in sorted(prices, key=lambda each: each.at):
        if price.at > since:
            later.append(price)
        else:
            before[price.zone, price.instance_type, price.product] = price
    return [*before.values(), *later]


def _instant(text: str | None, otherwise: datetime) -> datetime:
    return otherwise if text is None else datetime.fromisoformat(text).astimezone(UTC)
