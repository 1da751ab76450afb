"""What is known of a thread and what may be wanted: the data that flows."""
