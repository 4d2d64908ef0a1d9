"""What the user said, as data."""
