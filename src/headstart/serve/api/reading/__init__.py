"""Pure translations from a request to what the engine takes. Nothing here waits, and nothing knows an engine."""
