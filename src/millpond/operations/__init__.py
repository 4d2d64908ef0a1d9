"""What is done to a group and its state by people: look, change, repair, move."""
