"""What if alpha, K, c, the batch or the temperature were ...: questions to the formulas, answered together.

`question.ask` answers `options.Question`, and `question.what_if` the same in Python. NumPy only; no model is run.
"""
