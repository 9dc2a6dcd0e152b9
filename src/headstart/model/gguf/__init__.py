"""GGUF files, as llama.cpp and its relatives write them: read, checked, and made into a model and a tokenizer.

The format is described in docs/gguf.md of ggml-org/ggml. Nothing in a file is trusted: what is damaged, contradicts
itself or is not known here is refused by name, in bounded time and memory.
"""
