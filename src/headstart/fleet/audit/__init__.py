"""Auditing other people's servers through an OpenAI-compatible endpoint."""
