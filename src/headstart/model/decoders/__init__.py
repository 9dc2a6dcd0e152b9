"""Forward passes of decoder-only language models, from the general one to the fastest."""
