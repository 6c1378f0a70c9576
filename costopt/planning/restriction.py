"""What a user restricts a plan, a backtest or a run to: clouds, regions, capacity types."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from costopt.domain.account import Account
from costopt.domain.errors import SpecError
from costopt.domain.history import MarketHistory
from costopt.domain.market import Pool
from costopt.domain.policy import Policy
from costopt.planning.what_if import POLICY_TERMS, Capacity, narrow_policy
from costopt.spec.fields import did_you_mean


@dataclass(frozen=True, slots=True)
class Restriction:
    """Which pools may be used besides what the policy says; empty restricts nothing.

    ``gpus``, such as 8xH100, stands for what a job file says of them.
    """

    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    capacity: Capacity = POLICY_TERMS
    gpus: str | None = None

    def apply(self, policy: Policy) -> Policy:
        """Return the policy with narrower limits.

        Raise SpecError where the policy allows none of what is asked for.
        """
        narrowed = narrow_policy(policy, self.capacity)
        if narrowed is None:
            kinds = ", ".join(kind.value for kind in policy.limits.capacity_types)
            raise _refusal(policy, kinds, self.capacity.replace("_", "-"))
        limits = narrowed.limits
        providers = _both(policy, limits.providers, self.providers)
        regions = _both(policy, limits.regions, self.regions)
        return replace(narrowed, limits=replace(limits, providers=providers, regions=regions))

    def allows(self, pool: Pool) -> bool:
        """Return whether the pool is of these providers and regions."""
        return (not self.providers or pool.provider in self.providers) and (
            not self.regions or pool.region in self.regions
        )

    def check_names(self, account: Account, history: MarketHistory | None = None) -> None:
        """Raise SpecError for a provider or region that neither the record nor the account knows;
        without them the catalogue counts."""
        known = known_regions(account, history)
        for provider in self.providers:
            if provider not in known:
                raise _unknown("provider", provider, known, account, history)
        served = [known[name] for name in self.providers or known]
        if not all(served):  # an adapter whose regions only its cloud knows
            return
        names = sorted(set().union(*served))
        for region in self.regions:
            if region not in names:
                raise _unknown("region", region, names, account, history)


def known_regions(account: Account, history: MarketHistory | None) -> Mapping[str, Collection[str]]:
    """Return regions by provider: of the account, or of the record, or of the catalogue.

    They are empty for a provider whose regions are not known before it is asked.
    """
    from costopt.catalog import load_catalog

    listed: dict[str, set[str]] = {}
    if history is not None:
        for pool in history.pools:
            listed.setdefault(pool.provider, set()).add(pool.region)
    else:
        for region in load_catalog().regions():
            listed.setdefault(region.provider, set()).add(region.name)
    if not account.providers:
        return listed
    return {name: account.regions(name) or listed.get(name, ()) for name in account.providers}


def _unknown(
    kind: str,
    name: str,
    known: Collection[str],
    account: Account,
    history: MarketHistory | None,
) -> SpecError:
    near = did_you_mean(name, known) or f" (it names: {', '.join(sorted(known)) or 'none'})"
    if account.providers:
        source, hint = "the account file", "add it under providers: of the account file"
    elif history is not None:
        source, hint = f"market {history.name!r}", "costopt market show lists its pools"
    else:
        source, hint = "the catalogue", "costopt catalog --regions lists clouds and regions"
    return SpecError(
        f"{source} does not name {kind} {name!r}{near}",
        hint=hint,
        code="unknown_name",
        subject=name,
    )


def _both(policy: Policy, own: tuple[str, ...], asked: tuple[str, ...]) -> tuple[str, ...]:
    if not asked:
        return own
    both = tuple(each for each in asked if not own or each in own)
    if not both:
        raise _refusal(policy, ", ".join(own), ", ".join(asked))
    return both


def _refusal(policy: Policy, allowed: str, asked: str) -> SpecError:
    return SpecError(
        f"policy {policy.name} allows {allowed}, not {asked}",
        hint="ask for one that it allows, or choose another policy",
        code="not_allowed",
    )
