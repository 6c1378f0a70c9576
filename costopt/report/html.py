"""The HTML reports: one self-contained file each, with the extra ``report``."""

from __future__ import annotations

from costopt.report.backtest_page import write_backtest_report
from costopt.report.run_page import write_run_report

__all__ = ["write_backtest_report", "write_run_report"]
