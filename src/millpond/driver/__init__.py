"""What runs in the process of the program, once a batch: time, delivery, progress."""
