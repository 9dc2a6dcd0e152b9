"""What drafters that match text share: tries, their store, and transcripts for another tokenizer."""
