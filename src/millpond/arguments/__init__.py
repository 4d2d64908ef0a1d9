"""What the user's calls may take: lengths of time, windows, call sites, keywords of Quix."""
