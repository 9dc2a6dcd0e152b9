"""Draft heads that read a target's hidden states: EAGLE and Medusa, their files and their forwards."""
