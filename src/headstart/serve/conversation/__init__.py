"""Conversations with tools and reasoning, in no interface's own form: what is asked, how a model's chat template writes
it, and what the model's reply says. Nothing here knows a server."""
