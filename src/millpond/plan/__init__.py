"""What will run together: a graph of steps cut into stages."""
