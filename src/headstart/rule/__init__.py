"""The rule of speculative decoding and what it needs: distributions, noise and verification."""
