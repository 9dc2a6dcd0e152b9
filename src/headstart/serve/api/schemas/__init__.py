"""What requests may say. Unknown fields are refused by name; fields that cannot change an answer are accepted."""
