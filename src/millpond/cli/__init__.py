"""The command `millpond`."""
