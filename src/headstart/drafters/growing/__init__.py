"""What drafters that grow drafts from a law of their own share: chains, trees, and the shape to grow."""
