"""The data that flows: the state of a thread, and the actions on it."""
