"""What was found out when a model was first loaded, kept in the user's cache directory for the next start.

To know what a model is, transformers' classes are imported and its modules made, and the probe compares the kernels
with them: seconds, of which a small model's first token needs a tenth. All of that depends on the files and on what
reads them, so it is kept under a digest of both. With it a model is loaded without transformers: `config` and
`tokenizer` stand for what it would have made, `weights` reads the tensors where the decoder looks for them. That the
result is the model of the probe is not believed but compared: the kernels' logits of the probe's tokens must have the
same bits as when it was passed. Where anything differs or cannot be read, the model is loaded as it was the first time.
"""
