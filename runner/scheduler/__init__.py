"""The queue: which execution starts next and budgets."""
