"""What a target says of itself, and who may work on it."""
