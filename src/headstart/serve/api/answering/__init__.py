"""Pure translations from chunks and outputs to the JSON of answers. Nothing here waits, and nothing knows an engine."""
