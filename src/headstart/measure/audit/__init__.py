"""Does an engine write what its model would? Tests of sampled and greedy texts, and a certificate of the result."""
