"""The commands of `headstart`, one file each, and what they share: options, prompts, figures, the terminal.

Nothing here imports torch or the engine at import time, so that `headstart --help` answers at once.
"""
