"""What processes hand each other: packed rows, values, places, dead letters."""
