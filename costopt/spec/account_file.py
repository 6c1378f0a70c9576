"""The schema of account.yaml, and its conversion to the domain's Account.

The options of providers in an account file are validated by their adapters' own models.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from costopt.domain.account import (
    Account,
    AccountGuards,
    CarbonSource,
    CarbonSourceName,
    Quota,
    Tenant,
)
from costopt.domain.errors import StoreError
from costopt.provider.options import OptionModel
from costopt.spec.catalog_names import (
    gpu_model_error,
    misspelt_provider,
    misspelt_region,
    unknown_region,
)
from costopt.spec.contracts import ContractSection, contract_problems
from costopt.spec.declared import section_model, to_domain
from costopt.spec.fields import FileModel, Name, Text, Version, did_you_mean
from costopt.spec.price_terms import (
    CommitmentSection,
    CreditSection,
    DiscountSection,
    PriceSection,
    price_term_problems,
    price_terms,
)
from costopt.spec.yaml_document import VALUE_ERROR, Document, SpecFileError, SpecProblem
from costopt.store.address import REMOTE_SCHEMES, StoreAddress

InstanceFamily = Annotated[str, Field(pattern=r"^[A-Za-z]+$", max_length=16)]

KEY_FILE = "COSTOPT_CARBON_KEY_FILE"

LIMIT_FIELDS = ("max_nodes", "max_gpus", "max_vcpus", "max_kw", "max_usd_per_hour")


if TYPE_CHECKING:
    QuotaSection = FileModel
    TenantSection = FileModel
    GuardsSection = FileModel
else:
    QuotaSection = section_model("QuotaSection", Quota, families=list[InstanceFamily])
    TenantSection = section_model("TenantSection", Tenant)
    GuardsSection = section_model(
        "GuardsSection", AccountGuards, "What all jobs together may cost and hold."
    )


class CarbonSection(FileModel):
    """The service that is asked for live carbon intensities."""

    source: Annotated[CarbonSourceName, Field(strict=False)] = Field(
        description="electricity-maps, watttime, or gb-carbon-intensity, which needs no key"
    )
    key_file: Text | None = Field(
        default=None,
        description="file with the key, for watttime USER:PASSWORD; default: the file that "
        "COSTOPT_CARBON_KEY_FILE names",
    )
    url: Text | None = Field(
        default=None, description="address to ask instead of the service's own, such as a proxy's"
    )


class AccountFile(FileModel):
    """The account that jobs run in: its quotas and its tenants."""

    kind: Literal["account"] = Field(default="account", description="what this file is")
    version: Version = Field(default=1, description="version of this format")
    quotas: list[QuotaSection] = Field(
        default_factory=list, description="what may run at a time; default: no limit"
    )
    tenants: list[TenantSection] = Field(
        default_factory=list, description="who shares it; default: all jobs are equal"
    )
    owner: Name = Field(
        default="costopt", description="tag of all that is launched; nothing else is touched"
    )
    store: Text | None = Field(
        default=None,
        description="where nodes and controller exchange code, messages and checkpoints, such as "
        "s3://bucket/prefix; needed to launch nodes",
    )
    providers: dict[Name, dict[str, Any]] = Field(
        default_factory=dict,
        description="the clouds to rent from, by the name of their adapter, with its options",
    )
    electricity_contracts: list[ContractSection] = Field(
        default_factory=list,
        description="what market-based emissions count by; default: they are unknown",
    )
    guards: GuardsSection | None = Field(
        default=None,
        description="what stops launches and spending; default: the daemon's own guards",
    )
    carbon: CarbonSection | None = Field(
        default=None, description="live carbon intensities; default: annual means"
    )
    prices: list[PriceSection] = Field(
        default_factory=list, description="prices of one's own; default: what is quoted"
    )
    discounts: list[DiscountSection] = Field(
        default_factory=list, description="negotiated discounts; default: none"
    )
    commitments: list[CommitmentSection] = Field(
        default_factory=list,
        description="savings plans, reserved instances, committed use and reservations, which are "
        "used first; default: none",
    )
    credits: list[CreditSection] = Field(
        default_factory=list, description="what pays for usage until it is used up; default: none"
    )


def account_of(file: AccountFile, document: Document) -> Account:
    """The Account that ``file`` means. Raises SpecFileError with every contradiction."""
    quotas = tuple(to_domain(Quota, each) for each in file.quotas)
    tenants = [to_domain(Tenant, each) for each in file.tenants]
    names = [tenant.name for tenant in tenants]
    problems = [
        *_repeated(document, "quotas", [quota.name for quota in quotas]),
        *_repeated(document, "tenants", names),
        *contract_problems(document, file.electricity_contracts),
        *(
            problem
            for index, quota in enumerate(quotas)
            for problem in _contradictions(document, index, quota, names)
        ),
        *(
            document.problem(("tenants", index, "prefixes", place), refusal[1], code=refusal[0])
            for index, tenant in enumerate(tenants)
            for place, prefix in enumerate(tenant.prefixes)
            if (refusal := _no_prefix(prefix, file.store))
        ),
        *provider_problems(document, file.providers),
        *([] if file.carbon is None else _carbon_problems(document, file.carbon)),
        *price_term_problems(document, file),
    ]
    if problems:
        raise SpecFileError(problems)
    return Account(
        quotas=quotas,
        tenants={each.name: each for each in tenants},
        owner=file.owner,
        store=file.store,
        providers=file.providers,
        electricity_contracts=tuple(each.contract() for each in file.electricity_contracts),
        guards=AccountGuards() if file.guards is None else to_domain(AccountGuards, file.guards),
        carbon=None if file.carbon is None else carbon_source(file.carbon),
        price_terms=price_terms(file),
    )


def carbon_source(said: CarbonSection) -> CarbonSource:
    """The source, with the key file of the environment where the section names none."""
    key_file = None
    if said.source is not CarbonSourceName.GB_CARBON_INTENSITY:
        named = said.key_file or os.environ.get(KEY_FILE)
        key_file = Path(named) if named else None
    return CarbonSource(said.source, said.url or said.source.url, key_file)


def _carbon_problems(document: Document, said: CarbonSection) -> Iterable[SpecProblem]:
    if said.key_file is not None and said.source is CarbonSourceName.GB_CARBON_INTENSITY:
        message = f"{said.source.value} needs no key"
        yield document.problem(("carbon", "key_file"), message, on_key=True, code="extra_forbidden")
    if said.url is not None and not _may_send_key(said.url):
        message = "expected https:// and a host, or http:// and this machine, to keep the key safe"
        yield document.problem(("carbon", "url"), message, code=VALUE_ERROR)


def _may_send_key(url: str) -> bool:
    from costopt.web_connection import LOOPBACK

    try:
        parts = urlsplit(url)
        plain = not (parts.username or parts.query or parts.fragment) and parts.port != 0
        return (
            plain
            and url.isascii()
            and bool(parts.hostname)
            and (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK))
        )
    except ValueError:
        return False


def _no_prefix(prefix: str, store: str | None) -> tuple[str, str] | None:
    """Code and message of why this may not be a tenant's prefix, or None where it may."""
    try:
        place = StoreAddress.parse(prefix)
        whole = None if store is None else StoreAddress.parse(store)
    except StoreError as error:
        return error.code or VALUE_ERROR, error.message
    if place.scheme not in REMOTE_SCHEMES:
        return (
            "unknown_scheme",
            f"expected s3://bucket/prefix or gs://bucket/prefix, got {prefix!r}",
        )
    if whole is not None and place.holds(whole):
        message = f"{prefix} holds the account's store, in which other tenants' jobs lie too"
        return "holds_account_store", message
    return None


def _repeated(document: Document, section: str, names: list[str]) -> Iterable[SpecProblem]:
    for index, name in enumerate(names):
        if name in names[:index]:
            message = f"{name!r} names two {section}"
            yield document.problem((section, index, "name"), message, code="duplicate")


def _contradictions(
    document: Document, index: int, quota: Quota, known: list[str]
) -> Iterable[SpecProblem]:
    if all(getattr(quota, name) is None for name in LIMIT_FIELDS):
        message = f"limits nothing; give {_listed(LIMIT_FIELDS)}"
        yield document.problem(("quotas", index), message, code="missing")
    unknown = None if quota.gpu_model is None else gpu_model_error(quota.gpu_model)
    if unknown is not None:
        yield document.problem(("quotas", index, "gpu_model"), unknown, code="unknown_name")
    provider, region = quota.provider, quota.region
    places = {
        "provider": provider and misspelt_provider(provider),
        "region": region and misspelt_region(region, [provider] if provider else ()),
    }
    for field, why in places.items():
        if why:
            yield document.problem(("quotas", index, field), why, code="unknown_name")
    if quota.tenant is not None and known and quota.tenant not in known:
        near = did_you_mean(quota.tenant, known)
        message = f"{quota.tenant!r} is none of the tenants{near}"
        yield document.problem(("quotas", index, "tenant"), message, code="unknown_name")


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


GROUP = "costopt.providers"
"""The entry points of adapters; none is imported by name."""
MODEL = "OPTIONS"
SECTION = "providers"


def provider_problems(
    document: Document, providers: Mapping[str, Mapping[str, Any]]
) -> Iterator[SpecProblem]:
    """What is wrong with the options of each provider, with its place.

    An adapter that is not installed, cannot be imported or has no model is not checked here.
    """
    installed = {entry.name: entry for entry in entry_points(group=GROUP)}
    for name, options in providers.items():
        if why := None if name in installed else misspelt_provider(name):
            yield document.problem((SECTION, name), why, on_key=True, code="unknown_name")
        regions = options.get("regions")
        for index, region in enumerate(regions if isinstance(regions, list) else ()):
            if isinstance(region, str) and (why := unknown_region(f"{name}/{region}")):
                at = (SECTION, name, "regions", index)
                yield document.problem(at, why, code="unknown_name")
        model = options_model(installed[name]) if name in installed else None
        if model is not None:
            yield from _problems(model, document, name, options)


def _problems(
    model: type[OptionModel], document: Document, name: str, options: Mapping[str, Any]
) -> Iterator[SpecProblem]:
    known = model.of_files()
    for problem in model.problems(options):
        message = problem.message
        if problem.is_unknown and len(problem.at) == 1:
            near = did_you_mean(str(problem.at[0]), known)
            message = f"unknown key{near}" if near else f"unknown key; allowed: {', '.join(known)}"
        at = (SECTION, name, *problem.at)
        code = "extra_forbidden" if problem.is_unknown else VALUE_ERROR
        yield document.problem(at, message, on_key=problem.is_unknown, code=code)


def options_model(entry: EntryPoint) -> type[OptionModel] | None:
    """Return the model of an adapter's options, None where it has none or is not installed."""
    try:
        model = getattr(import_module(entry.module), MODEL, None)
    except ImportError:
        return None
    return model if isinstance(model, type) and issubclass(model, OptionModel) else None
