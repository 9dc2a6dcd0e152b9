"""The OpenAI-compatible HTTP interface: everything in front of a `Bridge`.

schemas/        what a request may say, field by field; each makes its own `Sampling` and `Drafting`
reading/        pure translations from a request to token ids and jobs
answering/      pure translations from chunks and outputs to JSON
service.py      the model that is served, and where requests are read
stream.py       answers as events, and waiting for them while the client may go
routes.py       the paths
layers.py       what guards them
app.py          puts them together
"""
