"""What drafters that grow drafts from a distribution of their own share: chains, trees, and the shape to grow."""
