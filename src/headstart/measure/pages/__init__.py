"""Report pages of what was measured."""
