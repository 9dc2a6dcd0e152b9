"""The rule of speculative decoding and what it stands on: distributions, noise and verification."""
