"""What is in a state directory, and how it is written, locked, compared and read."""
