"""Reports of runs, backtests, what-ifs and replays of fleets as self-contained HTML pages."""
