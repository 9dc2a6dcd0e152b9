"""The OpenAI-compatible HTTP interface: everything in front of a `Bridge`.

schemas/        what a request may say, field by field; each makes its own `Sampling` and `Drafting`
reading/        pure translations from a request to token ids and jobs
answering/      pure translations from chunks and outputs to JSON
routes/         one file for each group of paths
app.py          puts them together
"""
