"""Vocabularies, and translating tokens from one to another."""
