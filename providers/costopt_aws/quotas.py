"""The account's quotas of Service Quotas: vCPUs of a family on spot or on demand, by region."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from costopt.domain.account import Quota
from costopt.domain.market import CapacityType
from costopt.provider.cache import TtlCache
from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors

HOUR_S = 3600.0
USABLE_S = 24 * HOUR_S
_SPOT = re.compile(r"All (?P<families>.+) Spot Instance Requests")
_ON_DEMAND = re.compile(r"Running On-Demand (?P<families>.+) instances")
_LIST = re.compile(r"\((?P<letters>[^)]*)\)")
_FAMILY = re.compile(r"[A-Za-z]+\d*")
_NO_FAMILIES = frozenset({"and", "instances", "standard", "memory"})


class AccountQuotas:
    """ListServiceQuotas of EC2, once an hour for each region."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._kept: TtlCache[str, tuple[Quota, ...]] = TtlCache(HOUR_S, USABLE_S)

    def of(self, region: str, now: datetime) -> tuple[Quota, ...]:
        """Return the vCPU quotas of a region. Raise ProviderError."""
        return self._kept.get(region, now, lambda: self._ask(region))

    def _ask(self, region: str) -> tuple[Quota, ...]:
        with map_errors("servicequotas:ListServiceQuotas", region):
            pages = (
                self._clients.reading("service-quotas", region)
                .get_paginator("list_service_quotas")
                .paginate(ServiceCode="ec2")
            )
            items = [item for page in pages for item in page["Quotas"]]
            return tuple(read_quotas(region, items))


def read_quotas(region: str, items: Iterable[Mapping[str, Any]]) -> Iterable[Quota]:
    """Return the vCPU quotas, found by name: names follow a pattern, codes differ by family."""
    for item in items:
        for pattern, terms in ((_SPOT, CapacityType.SPOT), (_ON_DEMAND, CapacityType.ON_DEMAND)):
            named = pattern.fullmatch(item["QuotaName"])
            families = _families(named["families"]) if named else ()
            if families:
                yield Quota(
                    name=f"{item['QuotaName']} ({item['QuotaCode']}) in {region}",
                    provider="aws",
                    region=region,
                    capacity_type=terms,
                    families=families,
                    max_vcpus=int(item["Value"]),
                )


def _families(text: str) -> tuple[str, ...]:
    """ "G and VT" → g, vt; "P4, P3 and P2" → p4, p3, p2; "Standard (A, C, …)" → its letters."""
    listed = _LIST.search(text)
    words = _FAMILY.findall(listed["letters"] if listed else text)
    return tuple(dict.fromkeys(word.lower() for word in words if word.lower() not in _NO_FAMILIES))
