"""Answers from the records about what has run."""
