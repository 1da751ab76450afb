"""Logs, metrics."""
