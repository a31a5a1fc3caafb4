"""What becomes of definitions, names and places on their way from source to target."""
