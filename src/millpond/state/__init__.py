"""What is remembered: values, entries of a key, pages of a key group, and where they are kept."""
