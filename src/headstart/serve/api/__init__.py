"""The OpenAI-compatible HTTP interface: everything that stands in front of a `Bridge`.

schemas/        what a request may say, field by field
reading/        pure translations from a request to the engine's `Sampling`, `Drafting` and token ids
answering/      pure translations from chunks and outputs to JSON
routes/         one file for each group of paths
app.py          puts them together
"""
