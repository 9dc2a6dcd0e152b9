"""Lessons on speculative decoding: the page, the recorded traces in it, and the exercises written in Python."""
