"""Experiment to Plan: fingerprints, cost, limits, what may be left out."""
