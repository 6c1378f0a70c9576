"""The engine over a recorded market and a virtual clock: what-if, backtest, hindsight."""
