"""Which regions the account may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches

from costopt.domain.errors import BadRequestError, ForbiddenError, ProviderError
from costopt.provider.cache import TtlCache
from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors

DAY_S = 86400.0
NOT_ENABLED = "not-opted-in"


class Regions:
    """The status of every region, asked for once a day through the first region that answers."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._kept: TtlCache[str, Mapping[str, str]] = TtlCache(DAY_S, 7 * DAY_S)

    def check(self, region: str, now: datetime, through: tuple[str, ...] = ()) -> None:
        """Raise BadRequestError for a region that AWS has not, ForbiddenError for a disabled one.

        ``through`` are regions to ask where ``region`` cannot be. Where none answers, botocore's
        list says which regions exist, and the first call to the region will say what else is
        wrong with it.
        """
        known = self._clients.known_regions()
        askable = [each for each in dict.fromkeys((*through, region)) if each in known]
        statuses = self._statuses(askable, now)
        names = known if statuses is None else tuple(statuses)
        if region not in names:
            near = get_close_matches(region, names, n=3)
            raise BadRequestError(
                f"AWS has no region {region!r}",
                hint=f"did you mean {' or '.join(near)}?" if near else None,
            )
        if statuses is not None and statuses[region] == NOT_ENABLED:
            raise ForbiddenError(
                f"{region}: the region is not enabled in this account",
                hint=f"aws account enable-region --region-name {region}",
            )

    def _statuses(self, through: Iterable[str], now: datetime) -> Mapping[str, str] | None:
        for region in through:
            try:
                return self._kept.get(region, now, lambda region=region: self._ask(region))  # type: ignore[misc]
            except ProviderError:
                continue
        return None

    def _ask(self, region: str) -> Mapping[str, str]:
        with map_errors("ec2:DescribeRegions", region):
            answer = self._clients.reading("ec2", region).describe_regions(AllRegions=True)
            return {each["RegionName"]: each.get("OptInStatus", "") for each in answer["Regions"]}
