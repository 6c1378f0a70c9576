"""What an operator sees of the daemon: metrics, alerts, logs, reports and forecasts."""
