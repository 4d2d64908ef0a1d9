"""One batch, in a worker or in a test. Knows neither Spark nor the wall clock."""
