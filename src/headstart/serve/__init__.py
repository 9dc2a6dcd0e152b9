"""The engine as a server: an OpenAI-compatible interface in front, one engine thread behind a `Bridge`."""
