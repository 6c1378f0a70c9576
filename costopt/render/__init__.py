"""What a run or a backtest came to: tables, plots and self-contained HTML pages."""
