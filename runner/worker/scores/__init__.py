"""Steps that score models: held-out text, samples, tasks, and comparisons of scores."""
