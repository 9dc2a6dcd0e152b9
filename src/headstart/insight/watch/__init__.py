"""Watching servers that speculate: what their counters say, and whether it changed."""
