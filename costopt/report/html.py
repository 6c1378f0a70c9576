"""The HTML reports: one self-contained file each, with the extra ``report``."""

from __future__ import annotations

from costopt.report.backtest_page import write_backtest_report
from costopt.report.run_page import write_run_report
from costopt.report.what_if_page import write_what_if_report

__all__ = ["write_backtest_report", "write_run_report", "write_what_if_report"]
