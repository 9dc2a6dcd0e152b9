"""Running a model: weights, cache, attention and forward passes. The target and a draft LM are the same thing here."""
