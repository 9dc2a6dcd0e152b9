"""Does an engine write what its model would write? Tests of sampled and greedy texts, and a certificate of what they found."""
