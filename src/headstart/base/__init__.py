"""What every room may use, and what knows nothing of language models: errors, options, files, the machine, pages."""
