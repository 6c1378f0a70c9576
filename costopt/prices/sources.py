"""The public price lists, in the order in which they are trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from costopt.catalog.price_cache import SourceState
from costopt.domain.market import CapacityType
from costopt.download import Download, Downloader
from costopt.prices import aws_public, cyclenerd, dstack, skypilot
from costopt.prices.price_list import Parse


@dataclass(frozen=True, slots=True)
class Fetched:
    """A list that was retrieved, and its version: "" where the source has none."""

    version: str
    download: Download


Fetch = Callable[[Downloader, SourceState], Fetched | None]
"""Returns a source's list, None if it is the one that is known. Raises PriceListError and
DownloadError."""


@dataclass(frozen=True, slots=True)
class PriceSource:
    """A public list of one provider's prices.

    ``licence`` and ``terms`` are what is known of the right to use it. ``doubts_list``: where spot
    costs more than the list price, the list price is wrong; elsewhere spot is capped at it.
    """

    name: str
    provider: str
    about: str
    licence: str
    terms: str
    fetch: Fetch
    parse: Parse
    doubts_list: bool = False


def list_sources(skypilot_version: str = skypilot.DEFAULT_VERSION) -> tuple[PriceSource, ...]:
    """Return every source, the most trusted of each provider first."""
    return (
        PriceSource(
            name="dstack-aws",
            provider="aws",
            about="on-demand and the cheapest zone's spot price by region, hourly",
            licence="not stated; code MPL-2.0",
            terms="published for anonymous download; prices are facts; credit dstack gpuhunt",
            fetch=_dstack("aws"),
            parse=dstack.dstack_parser("aws", (CapacityType.ON_DEMAND, CapacityType.SPOT)),
        ),
        PriceSource(
            name="dstack-gcp",
            provider="gcp",
            about="spot prices by region, hourly",
            licence="not stated; code MPL-2.0",
            terms="published for anonymous download; prices are facts; credit dstack gpuhunt",
            fetch=_dstack("gcp"),
            parse=dstack.dstack_parser("gcp", (CapacityType.SPOT,)),
            doubts_list=True,
        ),
        PriceSource(
            name="skypilot-aws",
            provider="aws",
            about="spot prices by zone ID, four times a day",
            licence="not stated; code Apache-2.0",
            terms="prices are facts; credit skypilot-catalog; do not ship the file",
            fetch=_one_file(skypilot.skypilot_urls(skypilot_version), skypilot.MAX_BYTES),
            parse=skypilot.parse_skypilot_aws,
        ),
        PriceSource(
            name="cyclenerd-gcp",
            provider="gcp",
            about="on-demand and spot prices of whole machines, weekly",
            licence="Apache-2.0",
            terms="credit Nils Knieling, google-cloud-pricing-cost-calculator",
            fetch=_one_file((cyclenerd.URL,), cyclenerd.MAX_BYTES),
            parse=cyclenerd.parse_pricing,
            doubts_list=True,
        ),
        PriceSource(
            name="aws-spot",
            provider="aws",
            about="AWS's own spot prices by region, as a second witness",
            licence="not stated (AWS)",
            terms="the file behind AWS's public spot price page; undocumented",
            fetch=_one_file((aws_public.SPOT_URL,), aws_public.MAX_BYTES),
            parse=aws_public.parse_spot_feed,
        ),
        PriceSource(
            name="aws-advisor",
            provider="aws",
            about="AWS Spot Advisor: how often spot is interrupted",
            licence="not stated (AWS)",
            terms="the file behind AWS's public Spot Advisor page; undocumented",
            fetch=_one_file((aws_public.ADVISOR_URL,), aws_public.MAX_BYTES),
            parse=aws_public.parse_advisor,
        ),
    )


def _one_file(urls: tuple[str, ...], max_bytes: int) -> Fetch:
    def fetch(downloader: Downloader, before: SourceState) -> Fetched | None:
        url = before.edition.url if before.edition else ""
        found = downloader.get(urls, max_bytes, before.etag, url)
        return None if found is None else Fetched("", found)

    return fetch


def _dstack(provider: str) -> Fetch:
    def fetch(downloader: Downloader, before: SourceState) -> Fetched | None:
        found = dstack.fetch_dstack(downloader, provider, before.edition)
        return None if found is None else Fetched(*found)

    return fetch
