"""Turns a declaration into a plan, runs it on Ray, records and judges the results."""
