"""`costopt catalog update`: refreshes the price lists in the user's cache."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem

from costopt.cli.options import output_option, print_table
from costopt.domain.errors import PriceListError
from costopt.formatting import minute_text, seconds_text
from costopt.render.table import Column, Row, Table

if TYPE_CHECKING:
    from costopt.prices import UpdateReport
    from costopt.prices.checks import HeldPrice
    from costopt.prices.update import SourceReport

MAX_HELD_NAMED = 10


def _complete_source(
    context: click.Context,  # noqa: ARG001 - click's signature
    parameter: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[CompletionItem]:
    from costopt.prices.sources import list_sources

    return [CompletionItem(s.name) for s in list_sources() if s.name.startswith(incomplete)]


def _sources(
    context: click.Context, option: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    from costopt.prices.sources import list_sources
    from costopt.spec.fields import did_you_mean

    known = [source.name for source in list_sources()]
    for name in names:
        if name not in known:
            near = did_you_mean(name, known) or f"; one of {', '.join(known)}"
            raise click.BadParameter(f"there is no source {name!r}{near}", context, option)
    return names


def _mirrors(
    context: click.Context, option: click.Parameter, urls: tuple[str, ...]
) -> tuple[str, ...]:
    for url in urls:
        try:
            parts = urlsplit(url)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            valid = valid and parts.username is None
        except ValueError:
            valid = False
        if not valid:
            message = f"expected http:// or https:// and a host, without a user, got {url!r}"
            raise click.BadParameter(message, context, option)
    return urls


def _version(context: click.Context, option: click.Parameter, version: str) -> str:
    if not re.fullmatch(r"v\d{1,4}", version):
        raise click.BadParameter(f"expected v and a number, got {version!r}", context, option)
    return version


@click.command()
@click.option("--source", "sources", multiple=True, metavar="NAME", callback=_sources,
              shell_complete=_complete_source,
              help="Refresh this source alone; may be repeated. Default: all.")  # fmt: skip
@click.option("--mirror", "mirrors", multiple=True, metavar="URL", callback=_mirrors,
              help="Fetch https://HOST/PATH from URL/HOST/PATH instead; a second mirror is asked "
              "where the first fails.")  # fmt: skip
@click.option("--skypilot-version", default="v8", metavar="vN", callback=_version,
              help="Version of SkyPilot's catalog form.")  # fmt: skip
@output_option
def update(
    sources: tuple[str, ...], mirrors: tuple[str, ...], skypilot_version: str, output: str
) -> None:
    """Fetch today's public price lists; no account is needed.

    plan, what-if and catalog then use the newest figure of each pool, and name its source and age.
    A figure that departs too far from its type's median, the list price or the figure before is
    held back and listed. A source that fails leaves its earlier figures as they are, with their
    age. The file is prices.json in the folder costopt of $XDG_CACHE_HOME, by default ~/.cache.

    Exits with 0 if at least one source answered, with 1 if none did.
    """
    from costopt.prices import UpdateSettings, update_prices

    report = update_prices(UpdateSettings(sources, mirrors, skypilot_version))
    print_table(_report_table(report, datetime.now(UTC)), output)
    if not report.succeeded:
        raise PriceListError(
            "no price list was refreshed; what is in the cache stays as it is",
            hint="check the network and HTTPS_PROXY, or name a --mirror",
            code="none_refreshed",
        )


def _report_table(report: UpdateReport, now: datetime) -> Table:
    refreshed = sum(not each.message for each in report.sources)
    return Table(
        schema="costopt.prices-update/1",
        title=f"{refreshed} of {len(report.sources)} price lists are up to date",
        columns=_COLUMNS,
        rows=[_row(each, now) for each in report.sources],
        facts={
            "path": str(report.path),
            "notes": list(report.notes),
            "held": [_held_fields(each) for each in report.held],
        },
        notes=(*report.notes, *_held_notes(report.held), *_failures(report), *_credits(report)),
    )


def _row(report: SourceReport, now: datetime) -> Row:
    source, edition = report.source, report.state.edition
    return {
        "source": source.name,
        "provider": source.provider,
        "result": report.result,
        "prices": report.prices,
        "held": report.held,
        "version": edition.version if edition else None,
        "observed_at": edition.observed_at if edition else None,
        "dated": edition.dated if edition else None,
        "age_s": (now - edition.observed_at).total_seconds() if edition else None,
        "fetched_at": edition.fetched_at if edition else None,
        "checked_at": report.state.checked_at,
        "url": edition.url if edition else None,
        "sha256": edition.sha256 if edition else None,
        "size_bytes": edition.size_bytes if edition else None,
        "about": source.about,
        "licence": source.licence,
        "terms": source.terms,
        "message": report.message,
    }


_COLUMNS = (
    Column("source", "Source"),
    Column("result", "Result"),
    Column("prices", "Prices", right=True),
    Column("held", "Held", right=True),
    Column("observed_at", "As of", minute_text),
    Column("age_s", "Age", seconds_text, right=True, rank=1),
    Column("licence", "Licence"),
    Column("provider", "Provider", detail=True),
    Column("version", "Version", detail=True),
    Column("dated", "Dated", detail=True),
    Column("fetched_at", "Fetched", detail=True),
    Column("checked_at", "Checked", detail=True),
    Column("url", "URL", detail=True),
    Column("sha256", "SHA-256", detail=True),
    Column("size_bytes", "Bytes", detail=True),
    Column("about", "About", detail=True),
    Column("terms", "Terms", detail=True),
    Column("message", "Message", detail=True),
)


def _held_fields(held: HeldPrice) -> Row:
    return {
        "source": held.source,
        "pool": str(held.pool),
        "usd_per_hour": held.usd_per_hour if abs(held.usd_per_hour) < float("inf") else None,
        "code": held.code,
        "reason": held.reason,
        "kept_usd_per_hour": held.kept.usd_per_hour if held.kept else None,
        "kept_observed_at": held.kept.edition.observed_at if held.kept else None,
    }


def _held_notes(held: tuple[HeldPrice, ...]) -> list[str]:
    if not held:
        return []
    lines = [
        f"  {each.source}: {each.pool} at {each.usd_per_hour:.4g} $/h: {each.reason}"
        for each in held[:MAX_HELD_NAMED]
    ]
    more = len(held) - MAX_HELD_NAMED
    if more > 0:
        lines.append(f"  and {more} more, all in --output json")
    return [f"{len(held)} prices are held back, and those before them stay:", *lines]


def _failures(report: UpdateReport) -> list[str]:
    return [f"{each.source.name} failed: {each.message}" for each in report.sources if each.message]


def _credits(report: UpdateReport) -> list[str]:
    undated = [
        e.source.name for e in report.sources if e.state.edition and not e.state.edition.dated
    ]
    notes = [f"Stored in {report.path}; --output json has URLs, checksums, licences and terms."]
    if undated:
        notes.append(f"Without a date of their own, so perhaps older: {', '.join(undated)}.")
    return notes
