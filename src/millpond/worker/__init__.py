"""What runs in a worker process, and in tests: one batch, record by record."""
