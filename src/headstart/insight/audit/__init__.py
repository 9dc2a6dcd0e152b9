"""Does an engine say what the model says? Tests of sampled and greedy texts, and a certificate of what they found."""
