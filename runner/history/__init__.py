"""Queries over the records."""
