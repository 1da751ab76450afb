"""The queue: which execution starts next, budgets, and a simulation of both."""
