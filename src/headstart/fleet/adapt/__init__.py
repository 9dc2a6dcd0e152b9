"""Adapt the drafter to what is served: learn from traffic, prove the gain on held-out traffic, replace step by step."""
