"""The rule of speculative decoding and what it stands on: laws, noise and verification."""
