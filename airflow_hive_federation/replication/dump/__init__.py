"""What is written down of a source: at a bootstrap, at an increment, and what that needs of the source."""
