"""Watching servers that speculate: the ratios of their counters, and whether they changed."""
