"""The one composition root: run, daemon and backtest are assembled here and nowhere else."""
