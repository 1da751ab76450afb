"""Experiment to Plan: fingerprints, cost, limits, subsets."""
