"""Replay of a workload on a cluster: many jobs as arrays, under one policy after the other."""
