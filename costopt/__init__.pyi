from costopt.api.backtests import BacktestResult, backtest
from costopt.api.described_jobs import job
from costopt.api.inputs import Market, load_account, load_job, load_policy, read_market
from costopt.api.ledgers import JobRun, LedgerReader
from costopt.api.many_jobs import (
    AccountPlanResult,
    AccountWhatIfResult,
    plan_jobs,
    what_if_jobs,
)
from costopt.api.plans import (
    FrontierResult,
    PlanResult,
    WhatIfResult,
    frontier,
    plan,
    what_if,
)
from costopt.domain.account import Account
from costopt.domain.errors import (
    CostoptError,
    InfeasibleError,
    LedgerError,
    MarketError,
    MissingExtraError,
    ProviderError,
    SignalError,
    SpecError,
    StaleDataError,
    StoreError,
)
from costopt.domain.job import Job
from costopt.domain.market import Offer, Pool
from costopt.domain.policy import Policy
from costopt.domain.ports import Strategy
from costopt.domain.view import Decision, Desired, Target, View
from costopt.render.notebook import Chart

__version__: str

__all__ = [
    "Account",
    "AccountPlanResult",
    "AccountWhatIfResult",
    "BacktestResult",
    "Chart",
    "CostoptError",
    "Decision",
    "Desired",
    "FrontierResult",
    "InfeasibleError",
    "Job",
    "JobRun",
    "LedgerError",
    "LedgerReader",
    "Market",
    "MarketError",
    "MissingExtraError",
    "Offer",
    "PlanResult",
    "Policy",
    "Pool",
    "ProviderError",
    "SignalError",
    "SpecError",
    "StaleDataError",
    "StoreError",
    "Strategy",
    "Target",
    "View",
    "WhatIfResult",
    "__version__",
    "backtest",
    "frontier",
    "job",
    "load_account",
    "load_job",
    "load_policy",
    "plan",
    "plan_jobs",
    "read_market",
    "what_if",
    "what_if_jobs",
]
