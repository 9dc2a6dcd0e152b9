"""The step loop, and what one request is on its way from a prompt to an output."""
