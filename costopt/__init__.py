"""Finish training jobs by their deadline on spot capacity, at the lowest dollars and kWh.

The names of ``__all__`` are the public Python API. They are imported on first use, so that
``import costopt`` loads no library; ``__init__.pyi`` shows them to type checkers.
"""

from importlib import import_module

__version__ = "0.1.0"

_MODULES = {
    "costopt.api.backtests": ("BacktestResult", "backtest"),
    "costopt.api.described_jobs": ("job",),
    "costopt.api.inputs": ("Market", "load_account", "load_job", "load_policy", "read_market"),
    "costopt.api.ledgers": ("JobRun", "LedgerReader"),
    "costopt.api.many_jobs": (
        "AccountPlanResult",
        "AccountWhatIfResult",
        "plan_jobs",
        "what_if_jobs",
    ),
    "costopt.api.plans": (
        "FrontierResult",
        "PlanResult",
        "WhatIfResult",
        "frontier",
        "plan",
        "what_if",
    ),
    "costopt.domain.account": ("Account",),
    "costopt.domain.errors": (
        "CostoptError",
        "InfeasibleError",
        "LedgerError",
        "MarketError",
        "MissingExtraError",
        "ProviderError",
        "SignalError",
        "SpecError",
        "StaleDataError",
        "StoreError",
    ),
    "costopt.domain.job": ("Job",),
    "costopt.domain.market": ("Offer", "Pool"),
    "costopt.domain.policy": ("Policy",),
    "costopt.domain.ports": ("Strategy",),
    "costopt.domain.view": ("Decision", "Desired", "Target", "View"),
    "costopt.render.notebook": ("Chart",),
}
"""Where each public name is defined. By name of the module: an import statement would give every
module that reads the version a path to all of costopt."""

_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME)]  # noqa: PLE0604 - built of strings


def __getattr__(name: str) -> object:
    """Import a public name. Raise AttributeError for any other."""
    if name not in _HOME:
        raise AttributeError(f"module 'costopt' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
