"""Runs a stranger's code where it reaches nothing."""
