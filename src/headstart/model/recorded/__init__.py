"""Forwards of few rows on a GPU, recorded once as CUDA graphs and replayed: see `graphs`."""
