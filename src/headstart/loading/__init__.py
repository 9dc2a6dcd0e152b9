"""From names to an engine: checkpoints, drafters, pacing, put together in one place."""
