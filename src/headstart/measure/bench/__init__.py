"""How fast is it, here, on these prompts? Plain and speculative decoding in turn, with everything raw kept.

`session.Session` runs, `result.BenchResult` keeps what came (and reads and writes it), `summary.summarise` makes
figures of it, `comparison.compare` finds what changed between two results beyond noise. Only what runs needs torch.
"""
