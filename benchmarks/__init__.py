"""Benchmarks: what tracking, saving and restoring cost beside plain TFRA; what policies cost, simulated."""
