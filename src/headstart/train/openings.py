"""Beginnings of messages that a user may send, by kind: where a model that asks itself is to begin.

Without an opening a chat model asks what it was tuned on most; these spread it over what people use one for. They are
ours, generic on purpose, and each is cut where the model has everything still to choose.
"""

from __future__ import annotations

OPENINGS: dict[str, tuple[str, ...]] = {
    "open": ("",) * 12,
    "explain": ("Explain", "Explain why", "How does", "What is the difference between", "What happens when"),
    "code": (
        "Write a Python function that",
        "Write a program that",
        "Find the mistake in this code:\n\n",
        "Write an SQL query",
        "How do I write a test for",
    ),
    "translation": ("Translate into French:", "Translate into Spanish:", "Translate this into German:"),
    "summary": (
        "Summarise the following text",
        "What are the main points of this text?\n\n",
        "Shorten this paragraph:",
    ),
    "list": ("Give me five", "Make a list of", "Name three"),
    "maths": ("Calculate", "Solve", "A shop sells", "If a train"),
    "extraction": ("Extract the names and dates from", "Turn this into JSON:", "Sort the following into groups:"),
    "rewriting": ("Rewrite this politely:", "Correct the mistakes in", "Make this sentence shorter:"),
    "writing": ("Write a short story about", "Write an email", "Write a poem about", "Continue this story:"),
    "dialogue": ("Write a dialogue between", "Pretend that you are", "Let us play a game:"),
    "advice": ("How can I", "I would like to", "My friend", "What should I do if"),
    "facts": ("Who was", "When did", "Where is", "Why do"),
    "reading": ("Read the text and answer the question.\n\n", "True or false:"),
    "planning": ("Make a plan for", "Suggest", "Compare"),
}
"""By kind. The empty opening stands so often that it is about a fifth of all."""

ALL = tuple(opening for kind in OPENINGS.values() for opening in kind)
