"""Checkpoints whose matrices are quantised: compressed-tensors, GPTQ and AWQ on their own codes; others as floats."""
